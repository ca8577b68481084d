//! Machines described in files: a name, a shape, and costs by name.
//!
//! ```json
//! {"name": "mine", "shape": {"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1}, "costs": {"rmw": 4.5}}
//! ```
//!
//! Costs that aren't given are those of [`Costs::default`].

use crate::{Costs, Machine, SetupError, Shape};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A machine's description in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The machine's name in reports.
    pub name: String,
    /// Sockets, cores, threads.
    pub shape: Shape,
    /// Costs by name.
    pub costs: BTreeMap<String, f64>,
}

impl Description {
    /// Returns the whole cost table.
    ///
    /// # Errors
    /// [`SetupError::UnknownCost`], which lists the names; [`SetupError::BadCost`], which names the
    /// possible values.
    pub fn table(&self) -> Result<Costs, SetupError> {
        self.costs.iter().try_fold(Costs::default(), |costs, (name, &value)| costs.with(name, value))
    }

    /// Creates the machine.
    ///
    /// # Errors
    /// Those of [`table`](Self::table), and those of an impossible shape.
    pub fn machine(&self) -> Result<Machine, SetupError> {
        Ok(Machine::new(self.shape, self.table()?)?.named(&self.name))
    }
}

impl Machine {
    /// Creates a machine from a description in JSON, the format that Pagefold's `cargo bench-real
    /// calibrate --output` writes; see [`Description`].
    ///
    /// # Errors
    /// [`SetupError::NoDescription`], if the text isn't a description; otherwise those of
    /// [`Description::machine`].
    pub fn from_json(text: &str) -> Result<Self, SetupError> {
        let description: Description =
            serde_json::from_str(text).map_err(|error| SetupError::NoDescription { message: error.to_string() })?;
        description.machine()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(costs: &str) -> String {
        let shape = r#"{"sockets": 1, "cores_per_socket": 2, "threads_per_core": 1}"#;
        format!(r#"{{"name": "m", "shape": {shape}, "costs": {costs}}}"#)
    }

    #[test]
    fn a_description_is_a_machine() {
        let machine = Machine::from_json(&json(r#"{"rmw": 4.5}"#)).unwrap();
        assert_eq!((machine.cpus(), machine.cost_table().rmw), (2, 4.5));
        assert_eq!(machine.cost_table().pause, Costs::default().pause);
        let report = machine.run(|| ()).unwrap().report;
        assert_eq!(report.machine, "m");
    }

    #[test]
    fn mistakes_are_answered_with_what_is_possible() {
        let error = |costs: &str| Machine::from_json(&json(costs)).unwrap_err().to_string();
        assert!(error(r#"{"rwm": 4.5}"#).contains("line_hit, rmw, fence"), "{}", error(r#"{"rwm": 4.5}"#));
        assert!(error(r#"{"rmw": -1}"#).contains("0 to 1e12 ns"));
        assert!(error(r#"{"rmw": "4"}"#).contains("line 1"));
        assert!(Machine::from_json("{}").unwrap_err().to_string().contains("name"));
        let none = json("{}").replace("\"sockets\": 1", "\"sockets\": 0");
        assert!(Machine::from_json(&none).unwrap_err().to_string().contains("at least one"));
    }
}
