//! How numbers are printed.

/// `1 CPU`, `2 CPUs`.
pub(crate) fn cpus_label(cpus: usize) -> String {
    if cpus == 1 { "1 CPU".to_owned() } else { format!("{cpus} CPUs") }
}

/// Three significant digits or so.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
