//! Options of `bench load`.

/// The parts, in the order in which they run.
pub(crate) const PARTS: [&str; 10] = [
    "overload",
    "sessions",
    "connections",
    "idle",
    "readers",
    "slowhttp",
    "restarts",
    "floods",
    "streams",
    "thread",
];

const HELP: &str = "\
bench load                      every part, as a table, in about ten minutes
bench load overload idle        these alone
bench load sessions --json      for programs
bench load --scale 10           a tenth of the clients, for a quick look

parts: overload sessions connections idle readers slowhttp restarts floods streams thread
`ostler` and `fake-mcp` are taken from the folder that this program is in;
`slowhttp` needs slowhttptest (apt-get install slowhttptest).";

/// The format of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowFormat {
    Markdown,
    Json,
}

#[derive(Debug)]
pub(crate) struct LoadOptions {
    pub(crate) parts: Vec<String>,
    pub(crate) format: RowFormat,
    /// Scale of the numbers of clients, in percent; lower for a quick look.
    scale: usize,
}

impl LoadOptions {
    pub(crate) fn read(args: &[String]) -> Self {
        let mut options = Self { parts: Vec::new(), format: RowFormat::Markdown, scale: 100 };
        let mut args = args.iter();
        let refuse = |why: String| -> ! {
            eprintln!("error: {why}\n\n{HELP}");
            std::process::exit(2)
        };
        while let Some(word) = args.next() {
            match word.as_str() {
                "--json" => options.format = RowFormat::Json,
                "--markdown" => options.format = RowFormat::Markdown,
                "--scale" => {
                    let percent =
                        args.next().and_then(|text| text.parse().ok()).filter(|percent| *percent > 0);
                    options.scale =
                        percent.unwrap_or_else(|| refuse("--scale takes a number of percent".into()));
                }
                part if PARTS.contains(&part) => options.parts.push(part.into()),
                "-h" | "--help" => {
                    println!("{HELP}");
                    std::process::exit(0)
                }
                other => refuse(format!("`{other}` is neither an option nor a part")),
            }
        }
        if options.parts.is_empty() {
            options.parts = PARTS.map(Into::into).into();
        }
        options
    }

    /// Returns a number of clients at this scale.
    pub(crate) fn scaled(&self, number: usize) -> usize {
        (number * self.scale / 100).max(1)
    }
}
