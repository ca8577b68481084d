//! Traces. For any bytes, the parser must return a trace or an error message that isn't empty.

/// The first byte chooses a format, or that the format is detected.
pub(crate) fn any(bytes: &[u8]) {
    let Some((&how, trace)) = bytes.split_first() else { return };
    let format = [None, Some("csv"), Some("blocks"), Some("iolog")][usize::from(how % 4)];
    check(trace, format);
}

/// The first byte chooses the version. The other bytes are the lines after the first, which depends
/// only on the version.
pub(crate) fn iologs(bytes: &[u8]) {
    let Some((&how, lines)) = bytes.split_first() else { return };
    let first = format!("fio version {} iolog\n", 2 + how % 2);
    check(&[first.as_bytes(), lines].concat(), Some("iolog"));
}

fn check(trace: &[u8], format: Option<&str>) {
    if let Err(error) = pagefold_cli::check_trace(trace, format) {
        assert!(!error.is_empty(), "an error that says nothing");
    }
}
