//! The `mendcast` command.
fn main() {}
