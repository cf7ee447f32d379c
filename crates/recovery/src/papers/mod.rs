//! The schemes of papers, as published. Outside this folder only the catalogue imports them, so the
//! schemes of servers do not depend on a paper's code.

pub mod art;
pub mod autorec;
