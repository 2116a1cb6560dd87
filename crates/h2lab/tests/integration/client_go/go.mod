module h2lab.test/client

go 1.26
