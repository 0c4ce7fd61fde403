//! Config loader: reads the main file and the files it includes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::catalog::slug;
use crate::config::keys::Settings as _;
use crate::config::problem::{self, ProblemLog, Severity};
use crate::config::read::{
    ConfigNode, ConfigTable, ConfigValue, Dialect, FileContext, KeyLocations, SectionReader, SourceLocation,
    SourceSpan, SourceText, TableEntry, UnresolvedReference, client_formats, json, toml,
};
use crate::config::sections::server;
use crate::config::values::secret_literals::quote;
use crate::config::{Config, ConfigFormat, ConfigOrigins, ConfigSource, DisabledServer};
use crate::server_name::{MAX_LEN, ServerName};
use crate::spec::{ServerSpec, ServerTransport};

/// Largest file, in bytes; a config that a person can oversee is far smaller.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

/// Most servers in all.
const MAX_SERVERS: usize = 1_000;

/// Directories in which clients keep their files; paths are relative to the parent directory.
const CLIENT_DIRECTORIES: [&str; 5] = [".vscode", ".cursor", ".windsurf", ".zed", ".gemini"];

/// Builds a config from files.
pub(crate) struct ConfigLoader<'a> {
    pub(crate) source: &'a dyn ConfigSource,
    pub(crate) log: &'a ProblemLog,
    pub(crate) config: Config,
    key_locations: KeyLocations,
    /// Every name given to a server, usable or not, and its location.
    names: BTreeMap<ServerName, SourceLocation>,
}

impl<'a> ConfigLoader<'a> {
    pub(crate) fn new(source: &'a dyn ConfigSource, log: &'a ProblemLog) -> Self {
        let config = Config::new(Vec::new());
        Self { source, log, config, key_locations: KeyLocations::new(), names: BTreeMap::new() }
    }

    /// Returns the config built so far.
    pub(crate) fn finish(self) -> Config {
        let origins = ConfigOrigins { keys: self.key_locations, servers: self.names, ..self.config.origins };
        Config { origins, ..self.config }
    }

    /// Reads the main file and its includes.
    pub(crate) fn load(&mut self, file: &Path, text: &str, format: ConfigFormat) {
        self.read_file(file, text, format, true);
        for spec in &mut self.config.servers {
            self.config.defaults.apply(spec);
        }
        self.check_pool(file);
    }

    /// Warns if there are more servers than the pool has processes: each start would end another.
    fn check_pool(&self, file: &Path) {
        let processes =
            self.config.servers.iter().filter(|spec| matches!(spec.transport, ServerTransport::Stdio(_)));
        let (servers, places) = (processes.count(), self.config.pool.max_processes);
        if servers > places && !self.log.has_error() {
            let place = self.key_locations.get("pool.max_processes").cloned();
            let place = place
                .unwrap_or_else(|| SourceLocation { file: file.to_owned(), ..SourceLocation::default() });
            let message = format!("there are {servers} servers with a process and room for {places} at once");
            let hint = format!(
                "set `pool.max_processes = {servers}`; until then the least recently used idle one ends for another"
            );
            self.log.add(Severity::Warning, || {
                problem::problem_at(Severity::Warning, place, "pool.max_processes", message, Some(hint))
            });
        }
    }

    fn read_file(&mut self, file: &Path, text: &str, format: ConfigFormat, is_main: bool) {
        let document = SourceText::new(file, text);
        let places = RefCell::default();
        let mut context = FileContext {
            base: file.parent().unwrap_or(Path::new("")).to_owned(),
            home: self.source.home(),
            config_dir: self.source.config_dir(),
            ..FileContext::new(&document, self.log, &places)
        };
        if let Some(root) = parse(&context, format) {
            match detect_shape(&context, format, &root) {
                FileShape::Own(table) => self.read_own_file(&context, table, is_main),
                FileShape::Client(table, servers) => {
                    context.dialect = Dialect::Client;
                    context.base = client_base(&context.base);
                    context.inputs = client_formats::input_descriptions(table);
                    self.read_client_file(&context, table, servers);
                }
                FileShape::Nothing => {}
            }
        }
        self.key_locations.extend(places.into_inner());
    }

    /// Reads Ostler's own file. Only the servers of an included one are used.
    fn read_own_file(&mut self, context: &FileContext<'_>, table: &ConfigTable, is_main: bool) {
        let reader = SectionReader::from_table(context, Config::SECTION, "", SourceSpan::default(), table);
        reader.count("version");
        for entry in self.limit_servers(context, reader.named_entries("servers")) {
            self.read_own_server(context, entry);
        }
        let include = reader.texts("include").unwrap_or_default();
        if is_main {
            for (text, node) in include {
                self.include(context, text, node);
            }
        } else {
            refuse_all_but_servers(&reader);
        }
        *context.servers.borrow_mut() = self.names.keys().cloned().collect();
        self.config.fill(&reader);
        reader.finish();
    }

    /// Returns at most as many servers as are allowed, and reports the excess.
    fn limit_servers<'e>(
        &self,
        context: &FileContext<'_>,
        mut entries: Vec<&'e TableEntry>,
    ) -> Vec<&'e TableEntry> {
        let room = MAX_SERVERS - self.names.len().min(MAX_SERVERS);
        if let Some(beyond) = entries.get(room) {
            context.error(
                beyond.key_span,
                "servers",
                format!("there are more than {MAX_SERVERS} servers"),
                None,
            );
            entries.truncate(room);
        }
        entries
    }

    fn read_own_server(&mut self, context: &FileContext<'_>, entry: &TableEntry) {
        let path = format!("servers.{}", entry.key);
        let name = match ServerName::new(&entry.key) {
            Ok(name) => name,
            Err(error) => {
                let hint = slug(&entry.key).map(|name| format!("call it `{name}`"));
                return context.error(entry.key_span, &path, format!("{}: {error}", quote(&entry.key)), hint);
            }
        };
        let Some(table) = entry.node.as_table() else {
            let message = format!("`{path}` wants a table, found {}", entry.node.describe());
            return context.error(entry.node.span, &path, message, None);
        };
        self.add_server(context, name, entry.key_span, table);
    }

    /// Reads the servers of another client's file.
    fn read_client_file(&mut self, context: &FileContext<'_>, root: &ConfigTable, servers: &TableEntry) {
        for entry in &root.entries {
            warn_of_ignored(context, servers, entry);
        }
        let Some(table) = servers.node.as_table() else {
            let message = format!("`{}` wants a table, found {}", servers.key, servers.node.describe());
            return context.error(servers.node.span, "servers", message, None);
        };
        // Valid names are kept, whatever else is slugged to the same.
        let mut taken: BTreeSet<_> =
            table.entries.iter().filter_map(|entry| ServerName::new(&entry.key).ok()).collect();
        let mut seen = BTreeMap::new();
        for entry in self.limit_servers(context, table.entries.iter().collect()) {
            if let Some(first) = seen.insert(entry.key.as_str(), entry.key_span) {
                let line = context.line(first);
                let message =
                    format!("the server {} is given twice, first in line {line}", quote(&entry.key));
                context.error(entry.key_span, "servers", message, "keep one of them");
            } else if let Some(name) = client_name(context, entry, &mut taken) {
                self.read_client_server(context, name, entry);
            }
        }
    }

    fn read_client_server(&mut self, context: &FileContext<'_>, name: ServerName, entry: &TableEntry) {
        let path = format!("servers.{name}");
        match entry.node.as_table() {
            None => {
                let message = format!("`{path}` wants a table, found {}", entry.node.describe());
                context.error(entry.node.span, &path, message, None);
            }
            Some(theirs) => {
                if let Some(table) = client_formats::translate(context, &path, entry.key_span, theirs) {
                    self.add_server(context, name, entry.key_span, &table);
                }
            }
        }
    }

    fn add_server(
        &mut self,
        context: &FileContext<'_>,
        name: ServerName,
        at: SourceSpan,
        table: &ConfigTable,
    ) {
        let path = format!("servers.{name}");
        if let Some(first) = self.names.get(&name) {
            let message =
                format!("the server `{name}` is also given in {}:{}", first.file.display(), first.line);
            return context.error(at, &path, message, "rename or remove one of them");
        }
        self.names.insert(name.clone(), context.location(at));
        if let Some(flag) = table.get("disabled").filter(|entry| entry.node.value == ConfigValue::Flag(true))
        {
            return self.add_disabled_server(context, name, flag, table);
        }
        let spec =
            server::read(context, name.clone(), at, table).map(|spec| self.with_default_cwd(context, spec));
        match context.unresolved.take() {
            Some(UnresolvedReference { cause, remedy }) => {
                let spec = spec.unwrap_or_else(|| ServerSpec::stdio(name, "").lazy());
                self.config.disabled.push(DisabledServer { spec, cause, remedy });
            }
            None => self.config.servers.extend(spec),
        }
    }

    /// Sets the working directory of a process that has none to the folder of its file, wherever its host is
    /// started.
    fn with_default_cwd(&mut self, context: &FileContext<'_>, mut spec: ServerSpec) -> ServerSpec {
        if let ServerTransport::Stdio(process) = &mut spec.transport
            && process.cwd.is_none()
            && context.base.is_absolute()
        {
            process.cwd = Some(context.base.clone());
            self.config.origins.default_cwd_servers.insert(spec.name.clone());
        }
        spec
    }

    /// Adds a server that is not to be run. Its mistakes are not reported until it is.
    fn add_disabled_server(
        &mut self,
        context: &FileContext<'_>,
        name: ServerName,
        flag: &TableEntry,
        table: &ConfigTable,
    ) {
        let log = ProblemLog::default();
        let muted = FileContext { log: &log, ..context.clone() };
        let spec = server::read(&muted, name.clone(), flag.key_span, table);
        let spec = spec.unwrap_or_else(|| ServerSpec::stdio(name, "").lazy());
        let SourceLocation { file, line, .. } = context.location(flag.key_span);
        let cause = format!("{}:{line} says so", file.display());
        let remedy = format!("remove `{}` there to enable it", disabling_text(context, flag));
        self.config.disabled.push(DisabledServer { spec, cause, remedy });
    }

    fn include(&mut self, context: &FileContext<'_>, text: &str, node: &ConfigNode) {
        let file = match context.absolute(Path::new(text)) {
            Ok(file) => file,
            Err(why) => return context.error(node.span, "include", why, None),
        };
        let Some(format) = ConfigFormat::from_path(&file) else {
            let message = format!("{} can't be included: its format is not known", quote(text));
            return context.error(node.span, "include", message, "files end in .toml, .json or .jsonc");
        };
        match self.source.read(&file) {
            Ok(text) => self.read_file(&file, &text, format, false),
            Err(error) => {
                let message = format!("{} can't be read: {error}", quote(text));
                context.error(node.span, "include", message, "paths are relative to this file");
            }
        }
    }
}

/// Returns the key that disables a server and its value, as the file spells them.
fn disabling_text(context: &FileContext<'_>, flag: &TableEntry) -> String {
    let SourceSpan { start, .. } = flag.key_span;
    let line = context.document.text.get(start..).and_then(|rest| rest.split(['\n', ',', '}', '#']).next());
    line.unwrap_or("disabled").trim().to_owned()
}

/// Parses a file, unless it is too large or not of its format.
fn parse(context: &FileContext<'_>, format: ConfigFormat) -> Option<ConfigNode> {
    let text = context.document.text;
    if text.len() as u64 > MAX_FILE_BYTES {
        context.error(
            SourceSpan::default(),
            "",
            format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20),
            None,
        );
        return None;
    }
    let (parsed, hint) = match format {
        ConfigFormat::Toml => {
            (toml::parse(text), "a server is [servers.NAME], with `command = \"…\"` on a line below")
        }
        ConfigFormat::Json => {
            (json::parse(text), "see that each `{`, `[` and `\"` is closed, and commas stand between members")
        }
    };
    parsed.map_err(|error| context.error(error.span, "", error.message, Some(hint.into()))).ok()
}

/// Owner of a file, by its content.
enum FileShape<'a> {
    Own(&'a ConfigTable),
    /// The whole file, and its table of servers.
    Client(&'a ConfigTable, &'a TableEntry),
    /// Neither, which has been reported.
    Nothing,
}

fn detect_shape<'a>(context: &FileContext<'_>, format: ConfigFormat, root: &'a ConfigNode) -> FileShape<'a> {
    let Some(table) = root.as_table() else {
        context.error(
            root.span,
            "",
            format!("the file wants to be a table, found {}", root.describe()),
            None,
        );
        return FileShape::Nothing;
    };
    if format == ConfigFormat::Toml {
        return FileShape::Own(table);
    }
    if let Some(servers) = client_formats::find_servers(table) {
        return FileShape::Client(table, servers);
    }
    let is_own =
        table.entries.is_empty() || table.entries.iter().any(|e| Config::SECTION.field(&e.key).is_some());
    if is_own {
        return FileShape::Own(table);
    }
    let hint = "servers stand under `mcpServers`; Ostler's own file begins with `version`";
    context.error(root.span, "", "the file has no `mcpServers` and is not one of Ostler's", hint);
    FileShape::Nothing
}

fn client_base(directory: &Path) -> PathBuf {
    let is_clients =
        directory.file_name().is_some_and(|name| CLIENT_DIRECTORIES.iter().any(|known| name == *known));
    match directory.parent() {
        Some(above) if is_clients => above.to_owned(),
        _ => directory.to_owned(),
    }
}

/// Returns the name of another client's server, slugged if necessary.
fn client_name(
    context: &FileContext<'_>,
    entry: &TableEntry,
    taken: &mut BTreeSet<ServerName>,
) -> Option<ServerName> {
    if let Ok(name) = ServerName::new(&entry.key) {
        return Some(name);
    }
    let Some(name) = unique_slug(&entry.key, taken) else {
        let message = format!(
            "the name {} has no letter or digit that could stand in a server's name",
            quote(&entry.key)
        );
        context.error(entry.key_span, "servers", message, "server names are made of a-z, 0-9, `-` and `_`");
        return None;
    };
    taken.insert(name.clone());
    let message = format!("the server {} is called `{name}` here", quote(&entry.key));
    context.warn(entry.key_span, &format!("servers.{name}"), message, None);
    Some(name)
}

/// Reports Ostler's own keys at the top of another client's file, which have no effect.
fn warn_of_ignored(context: &FileContext<'_>, servers: &TableEntry, entry: &TableEntry) {
    let is_ours = Config::SECTION.field(&entry.key).is_some() && entry.key != "version";
    if !is_ours || entry.key_span == servers.key_span {
        return;
    }
    let message = format!("`{}` is not read in a file with `{}`", entry.key, servers.key);
    let hint = "write an ostler.toml that has it, with this file under `include`";
    // A rule that is silently not enforced is worse than a file that is refused.
    if entry.key == "roles" || entry.key == "auth" {
        context.error(entry.key_span, &entry.key, message, hint);
    } else {
        context.warn(entry.key_span, &entry.key, message, hint);
    }
}

fn refuse_all_but_servers(reader: &SectionReader<'_>) {
    for field in Config::SECTION.fields().filter(|field| !matches!(field.key, "version" | "servers")) {
        if reader.has(field.key) {
            let message = format!("`{}` in an included file: only its servers are taken", field.key);
            reader.context.error(reader.key_span(field.key), field.key, message, "move it to the main file");
        }
    }
}

/// Returns the slug, numbered if it is already taken: `time`, `time-2`, `time-3`.
pub(crate) fn unique_slug(text: &str, taken: &BTreeSet<ServerName>) -> Option<ServerName> {
    let name = slug(text)?;
    if !taken.contains(&name) {
        return Some(name);
    }
    // There are as many numbers as names, and one name has no number, so one is free.
    (2_u32..).take(taken.len()).find_map(|number| {
        let suffix = format!("-{number}");
        let stem = name.as_str().get(..MAX_LEN - suffix.len()).unwrap_or(name.as_str());
        let name = ServerName::new(&format!("{}{suffix}", stem.trim_end_matches(['-', '_']))).ok()?;
        (!taken.contains(&name)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_slugs_are_numbered() {
        let taken: BTreeSet<_> =
            ["time", "time-2"].iter().map(|name| ServerName::new(name).unwrap()).collect();
        assert_eq!(unique_slug("Time", &taken).unwrap().as_str(), "time-3");
        let long = BTreeSet::from([ServerName::new(&"x".repeat(32)).unwrap()]);
        assert_eq!(unique_slug(&"X".repeat(40), &long).unwrap().as_str(), format!("{}-2", "x".repeat(30)));
    }
}
