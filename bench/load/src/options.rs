//! What was typed.

/// The parts, in the order in which they run.
pub(crate) const PARTS: [&str; 9] =
    ["overload", "sessions", "connections", "idle", "readers", "slowhttp", "restarts", "floods", "streams"];

/// How the rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Markdown,
    Json,
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) parts: Vec<String>,
    pub(crate) format: Format,
    /// Of the numbers of clients, in percent; for a quick look.
    scale: usize,
}

impl Options {
    pub(crate) fn read() -> Self {
        let mut options = Self { parts: Vec::new(), format: Format::Markdown, scale: 100 };
        let mut typed = std::env::args().skip(1);
        while let Some(word) = typed.next() {
            match word.as_str() {
                "--json" => options.format = Format::Json,
                "--markdown" => options.format = Format::Markdown,
                "--scale" => {
                    let percent = typed.next().and_then(|text| text.parse().ok());
                    options.scale = percent.expect("--scale takes a number of percent");
                }
                part if PARTS.contains(&part) => options.parts.push(part.into()),
                other => panic!("`{other}` is neither an option nor one of {PARTS:?}"),
            }
        }
        if options.parts.is_empty() {
            options.parts = PARTS.map(Into::into).into();
        }
        options
    }

    /// So many, or fewer for a quick look.
    pub(crate) fn scaled(&self, number: usize) -> usize {
        (number * self.scale / 100).max(1)
    }
}
