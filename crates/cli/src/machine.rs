//! The memory that this process may use, according to the library.

use pagefold::{MemoryAllowed, memory_allowed};

use crate::failure::Failure;
use crate::units;

/// Compares a budget with the available memory. If the budget is larger, prints a warning; with
/// `pretouch`, which touches all of the budget, fails instead.
///
/// # Errors
/// Usage: the message contains the available memory.
pub(crate) fn check_budget(budget: u64, pretouch: bool) -> Result<(), Failure> {
    match message(budget, &memory_allowed(), pretouch) {
        Some(message) if pretouch => Err(Failure::Usage(message)),
        Some(message) => {
            units::warn(&message);
            Ok(())
        }
        None => Ok(()),
    }
}

fn message(budget: u64, allowed: &MemoryAllowed, pretouch: bool) -> Option<String> {
    if budget <= allowed.bytes {
        return None;
    }
    let (budget, has) = (units::bytes(budget), units::bytes(allowed.bytes));
    let has = match &allowed.limit {
        Some(limit) => format!("this process may have {has} ({})", limit.display()),
        None => format!("this machine has {has}"),
    };
    let what = if pretouch { "touched" } else { "filled" };
    Some(format!("a budget of {budget} can't be {what}: {has}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_both_sizes_and_the_limit() {
        let machine = MemoryAllowed { bytes: 47 << 29, limit: None };
        assert_eq!(
            message(100 << 40, &machine, true).unwrap(),
            "a budget of 100 TiB can't be touched: this machine has 23.5 GiB"
        );
        let limit = Some("/sys/fs/cgroup/memory/x/memory.limit_in_bytes".into());
        assert_eq!(
            message(64 << 20, &MemoryAllowed { bytes: 40 << 20, limit }, false).unwrap(),
            "a budget of 64 MiB can't be filled: this process may have 40 MiB \
             (/sys/fs/cgroup/memory/x/memory.limit_in_bytes)"
        );
        assert_eq!(message(47 << 29, &machine, true), None);
    }
}
