//! Formats the policies beside a run as text.

use crate::columns::Table;
use crate::policy_report::PolicyReport;
use crate::report::RunReport;
use crate::units;

/// Formats the policies beside `run`.
pub(crate) fn policies(report: &PolicyReport, run: &RunReport) -> String {
    let mut table = Table::new(&["policy", "misses", "of accesses", "over the best"]);
    for row in &report.rows {
        let over_best = row.over_best.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
        table.add(vec![row.policy.to_owned(), row.misses.to_string(), units::percent(row.miss_rate), over_best]);
    }
    // libCacheSim's counts aren't limited to 15, as ours are. Its counts are halved after every 32
    // uses for each page of room. Ours are first halved after 10 uses for each page of room, and
    // then after every 5.
    let mut notes = "W-TinyLFU is that of its paper. libCacheSim's counts uses over a longer time, and missed up to a \
                     fifth less often on recorded traces.\n"
        .to_owned();
    if report.read_ahead > 0 {
        let pages = units::plural(report.read_ahead, "page");
        notes +=
            &format!("What Pagefold missed includes {pages} that it read ahead; --advise random turns that off.\n");
    }
    if run.pages.is_none() {
        let metadata = units::bytes(run.metadata_bytes);
        notes += &format!("Pagefold's metadata took {metadata} of this room; --pages leaves it out.\n");
    }
    if !report.exact_order {
        notes += "The order of the accesses is approximate: it is that of the plan, and the run had several operations \
                  under way.\n";
    }
    if run.groups.len() > 1 {
        notes += "The policies share the room among all groups, without limits.\n";
    }
    format!(
        "\n{} of {}, room for {}\n{}{notes}",
        if report.accesses == 1 { "1 access".to_owned() } else { format!("{} accesses", report.accesses) },
        units::plural(report.pages, "page"),
        units::plural(report.room_pages, "page"),
        table.to_text(),
    )
}
