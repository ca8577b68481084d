//! Warnings that are logged once in a process. There is only one test in this file, because each
//! warning must be the process's first.
#![cfg(not(any(pagefold_loom, pagefold_manycore)))]

use std::fmt::{self, Debug};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use pagefold::{Pagefold, Size, SwapArea, memory_allowed};
use sync::Arc;
use sync::lock::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Keeps the messages of warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        struct Message<'a>(&'a mut String);
        impl Visit for Message<'_> {
            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                let _ = fmt::Write::write_fmt(self.0, format_args!("{field}={value:?} "));
            }
        }
        let mut text = String::new();
        event.record(&mut Message(&mut text));
        self.0.lock().push(text);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn what_a_user_should_look_at_is_said() {
    let warnings = Warnings::default();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    tracing::subscriber::with_default(warnings.clone(), || {
        // The budget is larger than memory. Whether there is enough address space for it doesn't
        // matter here.
        let _ = Pagefold::builder().memory(Size(memory_allowed().bytes * 2)).build();
        // A swap file that other users may read.
        let mm = Pagefold::builder().memory("4MiB").build().unwrap();
        for (name, mode) in [("open", 0o644), ("closed", 0o600)] {
            let path = directory.path().join(name);
            fs::write(&path, vec![0; 1 << 20]).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            mm.add_swap(SwapArea::path(&path).overwrite(true)).unwrap();
        }
    });
    let warnings = warnings.0.lock();
    let having = |texts: &[&str]| warnings.iter().filter(|said| texts.iter().all(|text| said.contains(text))).count();
    assert_eq!(having(&["a budget beyond the memory there is"]), 1, "{warnings:?}");
    assert_eq!(having(&["other users may read what is swapped out", "open"]), 1, "{warnings:?}");
    assert_eq!(having(&["other users may read"]), 1, "{warnings:?}");
}
