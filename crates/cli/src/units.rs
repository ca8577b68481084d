//! Formats and parses numbers for people.

use std::io::Write;
use std::time::Duration;

/// The maximum value of `--threads`. More threads count as a mistake.
const THREADS_MAX: usize = 1024;

/// Formats `value` with three significant digits. `value` is at least 1, unless it is in the
/// smallest unit.
fn digits(value: f64) -> String {
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// Formats `value` in the largest of `units` in which it is at least 1; each unit is `step` times
/// the unit before.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    // A value that would be rounded up to `step` is written in the next unit.
    while value >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0}{}", units[0]) } else { format!("{}{}", digits(value), units[unit]) }
}

/// `98304` is `96 KiB`, and `98305` is `96.0 KiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let exact = [" EiB", " PiB", " TiB", " GiB", " MiB", " KiB"].iter().zip([60, 50, 40, 30, 20, 10]).find_map(
        |(unit, shift)| {
            let whole = bytes >> shift;
            (bytes != 0 && whole << shift == bytes && whole < 1024).then(|| format!("{whole}{unit}"))
        },
    );
    exact.unwrap_or_else(|| scaled(bytes as f64, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"]))
}

/// `41234` is `41.2 k`.
pub(crate) fn count(count: f64) -> String {
    scaled(count, 1000.0, &["", " k", " M", " G", " T", " P", " E"])
}

/// `41234` nanoseconds are `41.2 µs`.
pub(crate) fn nanoseconds(ns: u64) -> String {
    if ns < 999_500_000_000 {
        scaled(ns as f64, 1000.0, &[" ns", " µs", " ms", " s"])
    } else {
        format!("{:.0} s", ns as f64 / 1e9)
    }
}

/// A duration with one or two decimals: `10.0 s`.
pub(crate) fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 10.0 { format!("{seconds:.2} s") } else { format!("{seconds:.1} s") }
}

/// A share as a percentage, a dash where nothing was counted.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// `1 write`, `2 writes`.
pub(crate) fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Prints a warning on standard error.
pub(crate) fn warn(message: &str) {
    // If this fails, there is no other place to report it.
    let _ = writeln!(std::io::stderr(), "warning: {message}");
}

/// Parses a size such as `128MiB`, `64k` or `4096`.
///
/// # Errors
/// A message that says what is wrong with the text.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    text.parse::<pagefold::Size>().map(|size| size.0).map_err(|error| error.to_string())
}

/// Parses a size of at least one byte.
///
/// # Errors
/// A message that says what is wrong with the text.
pub(crate) fn parse_positive_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("must be more than 0 bytes".to_owned()),
        size => Ok(size),
    }
}

/// Parses a number of threads.
///
/// # Errors
/// A message that says what is wrong with the text.
pub(crate) fn parse_threads(text: &str) -> Result<u16, String> {
    let number: i128 = text.trim().parse().map_err(|_| format!("`{text}` isn't a number of threads"))?;
    match u16::try_from(number) {
        Ok(threads) if (1..=THREADS_MAX).contains(&usize::from(threads)) => Ok(threads),
        _ => Err(format!("`{text}` isn't a number of threads from 1 to {THREADS_MAX}")),
    }
}

/// The maximum number of operations that a thread has in flight.
const DEPTH_MAX: u16 = 1024;

/// Parses a number of operations in flight.
///
/// # Errors
/// A message that says what is wrong with the text.
pub(crate) fn parse_depth(text: &str) -> Result<u16, String> {
    let depth = text.trim().parse().ok().filter(|depth| (1..=DEPTH_MAX).contains(depth));
    depth.ok_or_else(|| format!("`{text}` isn't a number from 1 to {DEPTH_MAX}"))
}

/// Parses a percentage from 0 to 100.
///
/// # Errors
/// A message that says what is wrong with the text.
pub(crate) fn parse_percent(text: &str) -> Result<u64, String> {
    let digits = text.trim().trim_end_matches('%').trim_end();
    let percent = digits.parse().ok().filter(|percent| (0..=100).contains(percent));
    percent.ok_or_else(|| format!("`{text}` isn't a whole number from 0 to 100"))
}

/// Parses a seed: any number of 64 bits.
///
/// # Errors
/// A message that says what is wrong with the text.
pub(crate) fn parse_seed(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("`{text}` isn't a whole number from 0 to {}", u64::MAX))
}

/// Parses a time such as `10s`, `500ms`, `2m`, `1h`; a plain number is seconds.
///
/// # Errors
/// A message that says what is wrong with the text.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.parse().map_err(|_| "expected a number and a unit, as in 10s".to_owned())?;
    let seconds_per_unit = match unit.trim() {
        "ms" => 0.001,
        "" | "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("unknown unit `{unit}`: use ms, s, m or h, as in 10s")),
    };
    let time = Duration::try_from_secs_f64(number * seconds_per_unit).map_err(|_| "too long".to_owned())?;
    if time.is_zero() {
        return Err("must be more than 0".to_owned());
    }
    Ok(time)
}

/// Parses a count, with `k`, `M` or `G` for thousands, millions or thousands of millions.
///
/// # Errors
/// A message that says what is wrong with the text.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.replace('_', "").parse().map_err(|_| "expected a whole number, as in 5M".to_owned())?;
    let factor = match unit.trim() {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        unit => return Err(format!("unknown unit `{unit}`: use k, M or G, as in 5M")),
    };
    match number.checked_mul(factor) {
        None => Err("too large".to_owned()),
        Some(0) => Err("must be more than 0".to_owned()),
        Some(count) => Ok(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_with_three_digits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(128 << 20), "128 MiB");
        assert_eq!(bytes((128 << 20) + 4096), "128 MiB");
        assert_eq!(bytes((1 << 20) + (1 << 19)), "1.50 MiB");
        assert_eq!(bytes(1000), "1000 B");
        assert_eq!(bytes(1_047_552), "1023 KiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(count(999.6), "1.00 k");
        assert_eq!(count(41_234.0), "41.2 k");
        assert_eq!(nanoseconds(210), "210 ns");
        assert_eq!(nanoseconds(41_234), "41.2 µs");
        assert_eq!(nanoseconds(999_700), "1.00 ms");
        assert_eq!(nanoseconds(9_999), "10.0 µs");
        assert_eq!(nanoseconds(5_000_000_000_000), "5000 s");
        assert_eq!(percent(Some(0.8414)), "84.1 %");
        assert_eq!(percent(None), "-");
    }

    #[test]
    fn durations_parse() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "s", "-1s", "1.2.3s", "10 parsecs", "0", "1e400", "99999999999999999999h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn counts_parse() {
        assert_eq!(parse_count("5M"), Ok(5_000_000));
        assert_eq!(parse_count("1_000"), Ok(1_000));
        for bad in ["", "0", "k", "1.5M", "5X", "-1", "99999999999G", "999999999999999999999"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn percents_parse() {
        assert_eq!((parse_percent("0"), parse_percent("80%"), parse_percent("100")), (Ok(0), Ok(80), Ok(100)));
        for bad in ["", "101", "-1", "50.5", "%", "half"] {
            assert!(parse_percent(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_parse() {
        assert_eq!(parse_size("64k"), Ok(64 << 10));
        assert_eq!(parse_positive_size("1.5GiB"), Ok(3 << 29));
        for bad in ["", "MiB", "12 parsecs", "-1", "99999999999999999999TiB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert!(parse_positive_size("0").is_err());
    }
}
