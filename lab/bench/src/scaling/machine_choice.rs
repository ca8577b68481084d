//! Which virtual machine: a preset, or a file with a shape and costs.

use std::fs;
use std::path::Path;

use anyhow::Result;
use manycore::{Description, Machine, PRESETS, Preset, SetupError, Shape};

use super::results::Host;
use crate::usage::Usage;

/// A machine and what it is called.
#[derive(Clone, Debug)]
pub(crate) struct MachineChoice {
    /// To run on.
    pub(crate) machine: Machine,
    /// In records.
    pub(crate) name: String,
    /// Its CPUs, cores and sockets.
    pub(crate) shape: Shape,
}

/// The most CPUs of a quick run, whose figures mean nothing.
const QUICK_CPUS: usize = 8;

impl MachineChoice {
    /// Returns the preset with that name or, if there is none, the machine in the file with that
    /// name.
    ///
    /// # Errors
    /// Usage: there is neither a preset nor a readable file, or the file doesn't describe a
    /// machine.
    pub(crate) fn find(name: &str) -> Result<Self> {
        if let Some(preset) = PRESETS.iter().find(|preset| preset.name == name) {
            let machine = Machine::preset(name).map_err(usage)?;
            return Ok(Self { machine, name: name.to_owned(), shape: preset.shape });
        }
        let text = fs::read_to_string(Path::new(name)).map_err(|error| {
            let presets: Vec<&str> = PRESETS.iter().map(|preset: &Preset| preset.name).collect();
            let presets = presets.join(", ");
            Usage::error(format!(
                "no machine {name:?}: neither a preset ({presets}) nor a file that can be read ({error})"
            ))
        })?;
        let description: Description = serde_json::from_str(&text).map_err(|error| {
            let wanted = "it has name, shape and costs, as `cargo bench-real calibrate` writes them";
            Usage::error(format!("{name} isn't a machine: {error}; {wanted}"))
        })?;
        let machine = description.machine().map_err(usage)?;
        Ok(Self { machine, name: description.name, shape: description.shape })
    }

    /// For tables and records.
    pub(crate) fn host(&self) -> Host {
        Host { name: self.name.clone(), cpus: self.shape.cpus() }
    }

    /// The numbers of CPUs for a curve: powers of two, a socket, all cores, all CPUs. With `quick`,
    /// only 1 and the largest one, at most `QUICK_CPUS`.
    pub(crate) fn usual_cpus(&self, quick: bool) -> Vec<usize> {
        let all = self.shape.cpus();
        if quick {
            return vec![1, all.min(QUICK_CPUS)];
        }
        let powers = (0..9).map(|power| 1 << power).filter(|&cpus| cpus < all);
        powers.chain([self.shape.cores_per_socket, self.shape.cores(), all]).collect()
    }
}

fn usage(error: SetupError) -> anyhow::Error {
    Usage::error(error.to_string())
}
