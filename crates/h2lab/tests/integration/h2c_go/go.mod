module h2c_go

go 1.26.0

require golang.org/x/net v0.56.0

require golang.org/x/text v0.40.0 // indirect
