//! Rare events, each of which must happen at least once in a run over many seeds.

use std::ops::AddAssign;

macro_rules! sometimes {
    ($($thing:ident),* $(,)?) => {
        #[derive(Debug, Default)]
        pub(crate) struct Sometimes {
            $(pub(crate) $thing: u64,)*
        }

        impl AddAssign for Sometimes {
            fn add_assign(&mut self, more: Self) {
                $(self.$thing += more.$thing;)*
            }
        }

        impl Sometimes {
            /// Fails if one of them never happened.
            pub(crate) fn check(&self) {
                $(assert!(self.$thing > 0, "never happened: {}", stringify!($thing));)*
            }
        }
    };
}

sometimes! {
    evictions,
    refaults,
    batched_reads,
    batched_reads_failed,
    batched_writes,
    batched_writes_failed,
    futures,
    futures_dropped,
    read_ahead,
    read_ahead_wasted,
    errors,
    short_transfers,
    interrupts,
    limit_reached,
    refusals_due,
    pins,
    writes_refused,
    changes_refused,
    lengths_refused,
    direct_reclaims,
    budgets_lowered,
    budgets_refused,
    writes,
    writes_failed,
    writes_in_part,
    pages_changed,
    growths,
    cuts,
    cuts_refused,
    lengths_failed,
    syncs,
    syncs_failed,
    ranges_synced,
    ranges_paged_out,
    pages_in_memory,
    pages_recharged,
    groups_built_again,
    recharges_refused,
    failures_heard_later,
    closes_failed,
    handles_dropped,
    lost_at_close,
    written_in_the_background,
}
