//! Whether two functions of this program are the same machine code.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

/// This program's functions, from its own file.
pub(crate) struct Program {
    /// The code section, and where it lies in the file's addresses.
    code: (u64, Vec<u8>),
    /// The end of each function by its beginning.
    functions: BTreeMap<u64, u64>,
    /// What the loader added to the file's addresses.
    moved_by: u64,
}

impl Program {
    /// This program. `known` must be one of its functions, and `name` the function's symbol.
    pub(crate) fn this(known: *const u8, name: &str) -> Self {
        let bytes = std::fs::read("/proc/self/exe").expect("this program's own file");
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let text = file.section_by_name(".text").expect("code");
        let code = (text.address(), text.data().expect("code").to_vec());
        let functions = || file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
        let address = functions().find(|symbol| symbol.name() == Ok(name)).expect("the known function").address();
        let functions = functions().map(|symbol| (symbol.address(), symbol.address() + symbol.size())).collect();
        Self { code, functions, moved_by: known.addr() as u64 - address }
    }

    /// Compares two functions, and the functions that they call. Returns the number of
    /// instructions, or where they differ.
    pub(crate) fn compare(&self, left: *const u8, right: *const u8) -> Result<usize, String> {
        let mut seen = HashSet::new();
        let mut pairs = vec![[left, right].map(|function| function.addr() as u64 - self.moved_by)];
        let mut compared = 0;
        while let Some(pair) = pairs.pop() {
            // Nothing to compare if the pair has been compared, or if both sides are one function:
            // both call it, or the compiler has merged two equal functions.
            let known = !seen.insert(pair) || (pair[0] == pair[1] && compared > 0);
            let [Some(one), Some(other)] = pair.map(|start| self.function(start)) else {
                // Code without a symbol, which only both can share.
                if pair[0] != pair[1] {
                    return Err(format!("calls of {:x} and {:x}", pair[0], pair[1]));
                }
                continue;
            };
            if known {
                continue;
            }
            let [left, right] = [self.instructions(&one), self.instructions(&other)];
            for (a, b) in left.iter().zip(&right) {
                if !alike(a, b, &one, &other) {
                    return Err(format!("after {compared} instructions that agree, {a:?} meets {b:?}"));
                }
                compared += 1;
                pairs.extend(leaves(a, &one).zip(leaves(b, &other)).map(|(a, b)| [a, b]));
            }
            if left.len() != right.len() {
                return Err(format!("{} instructions meet {}", left.len(), right.len()));
            }
        }
        Ok(compared)
    }

    fn function(&self, start: u64) -> Option<Range<u64>> {
        self.functions.get(&start).map(|&end| start..end)
    }

    fn instructions(&self, function: &Range<u64>) -> Vec<Instruction> {
        let (from, bytes) = &self.code;
        let place = |address: u64| usize::try_from(address - from).expect("within the code");
        let code = &bytes[place(function.start)..place(function.end)];
        Decoder::with_ip(64, code, function.start, DecoderOptions::NONE).into_iter().collect()
    }
}

/// Where an instruction leaves its function to, if it does.
fn leaves(instruction: &Instruction, function: &Range<u64>) -> std::option::IntoIter<u64> {
    let to = instruction.near_branch_target();
    let near = instruction.op_count() > 0 && is_near(instruction.op_kind(0));
    let jumps = matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch
    );
    (near && jumps && !function.contains(&to)).then_some(to).into_iter()
}

fn is_near(kind: OpKind) -> bool {
    matches!(kind, OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
}

/// Whether two instructions have the same operation and operands. Jumps within the functions must
/// lead to the same offset.
fn alike(a: &Instruction, b: &Instruction, one: &Range<u64>, other: &Range<u64>) -> bool {
    let operand = |instruction: &Instruction, function: &Range<u64>, at: u32| match instruction.op_kind(at) {
        OpKind::Register => (OpKind::Register, instruction.op_register(at) as u64, 0),
        kind if is_near(kind) => {
            let to = instruction.near_branch_target();
            // A function of its own is compared by itself.
            (kind, if function.contains(&to) { to - function.start } else { u64::MAX }, 0)
        }
        // A constant of the program's, such as the place that a panic names.
        OpKind::Memory if instruction.is_ip_rel_memory_operand() => (OpKind::Memory, 0, 0),
        OpKind::Memory => {
            let registers = ((instruction.memory_base() as u64) << 32) | instruction.memory_index() as u64;
            let scale = u64::from(instruction.memory_index_scale()) << 56;
            (OpKind::Memory, registers | scale, instruction.memory_displacement64())
        }
        kind => (kind, instruction.immediate(at), 0),
    };
    a.code() == b.code()
        && a.has_lock_prefix() == b.has_lock_prefix()
        && a.segment_prefix() == b.segment_prefix()
        && (0..a.op_count()).all(|at| operand(a, one, at) == operand(b, other, at))
}
