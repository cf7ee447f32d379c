//! Numbers of replicas that need no measurement: they depend on the round alone.

pub mod fixed;
