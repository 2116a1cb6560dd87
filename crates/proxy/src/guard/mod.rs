//! What protects services and the proxy itself: deadlines ([`deadlines`]), a budget of retries ([`budget`]), bounds on
//! what is open and waits ([`breaker`]), rates ([`rate`]), instances that are left out because they fail ([`outlier`])
//! or fail their health checks ([`health`]), which of these get requests all the same ([`panic`]), and memory
//! ([`memory`]).

pub mod breaker;
pub mod budget;
pub mod deadlines;
pub mod health;
pub mod memory;
pub mod outlier;
pub mod panic;
pub mod rate;
