//! As much of the x86-64 instruction format as it takes to recognise atomic read-modify-writes.
//!
//! An instruction is prefixes, then an opcode. Atomic are those with the `lock` prefix, and `xchg`
//! with memory, which locks without it. Other processors' code isn't understood; the experiment
//! isn't offered there.

/// What an instruction is, as far as anyone here cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// An atomic read-modify-write.
    pub(crate) atomic: bool,
    /// A call into the kernel.
    pub(crate) system_call: bool,
    /// May be executed many times without moving on (`rep movsb`).
    pub(crate) repeats: bool,
    /// `int3`, with which the code under test says where it begins and ends.
    pub(crate) breakpoint: bool,
}

/// No instruction is longer.
pub(crate) const LENGTH_MAX: usize = 15;

impl Instruction {
    /// The instruction at the start of `code`.
    pub(crate) fn decode(code: &[u8]) -> Self {
        let mut decoded = Self::default();
        let mut rest = code;
        while let [byte, tail @ ..] = rest {
            match byte {
                0xF0 => decoded.atomic = true,
                0xF2 | 0xF3 => decoded.repeats = true,
                // Segment overrides, operand and address size.
                0x26 | 0x2E | 0x36 | 0x3E | 0x64..=0x67 => {}
                _ => break,
            }
            rest = tail;
        }
        // REX comes last of all prefixes.
        if let [0x40..=0x4F, tail @ ..] = rest {
            rest = tail;
        }
        match rest {
            // xchg; a register operand has both upper bits of ModRM set.
            [0x86 | 0x87, modrm, ..] if modrm >> 6 != 3 => decoded.atomic = true,
            [0x0F, 0x05, ..] => decoded.system_call = true,
            [0xCC, ..] => decoded.breakpoint = true,
            _ => {}
        }
        // F2 and F3 mean repetition with string instructions alone.
        decoded.repeats &= matches!(rest, [0x6C..=0x6F | 0xA4..=0xA7 | 0xAA..=0xAF, ..]);
        decoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atomic(code: &[u8]) -> bool {
        Instruction::decode(code).atomic
    }

    #[test]
    fn atomics_are_recognised_behind_all_prefixes() {
        assert!(atomic(&[0xF0, 0x48, 0x0F, 0xB1, 0x0F]), "lock cmpxchg [rdi], rcx");
        assert!(atomic(&[0x66, 0xF0, 0x0F, 0xC1, 0x07]), "lock xadd [rdi], ax");
        assert!(atomic(&[0x64, 0xF0, 0x48, 0xFF, 0x00]), "lock inc fs:[rax]");
        assert!(atomic(&[0x48, 0x87, 0x07]), "xchg [rdi], rax");
        assert!(atomic(&[0x86, 0x07]), "xchg [rdi], al");
    }

    #[test]
    fn others_are_not() {
        assert!(!atomic(&[0x48, 0x87, 0xC7]), "xchg rdi, rax");
        assert!(!atomic(&[0x0F, 0xB1, 0x0F]), "cmpxchg without lock");
        assert!(!atomic(&[0x48, 0x8B, 0xF0]), "mov rsi, rax: F0 is its ModRM");
        assert!(!atomic(&[0xC3]));
        assert_eq!(Instruction::decode(&[]), Instruction::default());
    }

    #[test]
    fn repeated_strings_system_calls_and_breakpoints() {
        assert!(Instruction::decode(&[0xF3, 0xA4]).repeats, "rep movsb");
        assert!(Instruction::decode(&[0xF3, 0x48, 0xA5]).repeats, "rep movsq");
        assert!(!Instruction::decode(&[0xF3, 0x90]).repeats, "pause");
        assert!(!Instruction::decode(&[0xF3, 0x0F, 0x6F, 0x07]).repeats, "movdqu");
        assert!(Instruction::decode(&[0x0F, 0x05]).system_call);
        assert!(Instruction::decode(&[0xCC]).breakpoint);
    }
}
