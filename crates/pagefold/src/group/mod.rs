//! Memory groups: a tenant's state, its limit, and what counts towards the limit.

pub(crate) mod dirt;
pub(crate) mod parts;
pub(crate) mod reserve;
pub(crate) mod state;
pub(crate) mod stocks;
pub(crate) mod swapped;
pub(crate) mod table;
pub(crate) mod unclean;
pub(crate) mod walk;
