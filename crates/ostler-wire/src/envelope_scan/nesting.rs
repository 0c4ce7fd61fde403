//! Nesting depth in two counters.

/// Counts of open objects and arrays. Their order is not kept, because that takes a stack that a server could
/// grow without bound. A bracket counts as matched if any bracket of its kind is open, and the outermost
/// object must close last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nesting {
    /// Open braces. At least one from the object's first byte to its last.
    braces: usize,
    /// Open brackets. Zero where the object closes.
    brackets: usize,
}

impl Nesting {
    pub(super) fn depth(&self) -> usize {
        self.braces + self.brackets
    }

    pub(super) fn open(&mut self, byte: u8) {
        match byte {
            b'{' => self.braces += 1,
            _ => self.brackets += 1,
        }
    }

    /// Closes a bracket. Returns whether one of its kind was open.
    pub(super) fn close(&mut self, byte: u8) -> bool {
        match (byte, self.braces, self.brackets) {
            (b'}', 2.., _) | (b'}', 1, 0) => self.braces -= 1,
            (b']', _, 1..) => self.brackets -= 1,
            _ => return false,
        }
        true
    }

    /// Skips content deep inside the object, up to a quote, a newline, or a bracket that is unmatched or
    /// closes a top-level value. Returns the position of that byte.
    pub(super) fn skip_content(&mut self, bytes: &[u8]) -> usize {
        // A local copy stays in registers, which is what makes this loop fast.
        let Nesting { mut braces, mut brackets } = *self;
        let stop = bytes.iter().position(|byte| {
            match byte {
                b'{' => braces += 1,
                b'[' => brackets += 1,
                b'}' if braces > 1 && braces + brackets > 2 => braces -= 1,
                b']' if brackets > 0 && braces + brackets > 2 => brackets -= 1,
                b'"' | b'\n' | b'}' | b']' => return true,
                _ => {}
            }
            false
        });
        *self = Nesting { braces, brackets };
        stop.unwrap_or(bytes.len())
    }
}
