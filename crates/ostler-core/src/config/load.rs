//! From files to a config: the main file, and the files it includes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::document::{Document, Place, Span};
use super::node::{Entry, Node, Table, Value};
use super::problem::{self, Log, Severity};
use super::reader::Reader;
use super::scope::{Dialect, Places, Scope, Unresolved};
use super::secret::quote;
use super::section::Settings as _;
use super::{Config, Disabled, Format, Origins, Source, clients, json, server, toml};
use crate::catalog::slug;
use crate::name::{MAX_LEN, ServerName};
use crate::spec::{ServerSpec, Transport};

/// The largest file, in bytes; a config a person can oversee is far smaller.
pub const LARGEST_FILE: u64 = 4 << 20;

/// The most servers in all.
const MOST_SERVERS: usize = 1_000;

/// Directories that clients keep their files in; paths are relative to the one above.
const CLIENT_DIRECTORIES: [&str; 5] = [".vscode", ".cursor", ".windsurf", ".zed", ".gemini"];

/// Gathers a config from files.
pub(crate) struct Loader<'a> {
    pub(crate) source: &'a dyn Source,
    pub(crate) log: &'a Log,
    pub(crate) config: Config,
    places: Places,
    /// Every name given to a server, usable or not, and where.
    names: BTreeMap<ServerName, Place>,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(source: &'a dyn Source, log: &'a Log) -> Self {
        let config = Config::new(Vec::new());
        Self { source, log, config, places: Places::new(), names: BTreeMap::new() }
    }

    /// What was gathered.
    pub(crate) fn finish(self) -> Config {
        let origins = Origins { keys: self.places, servers: self.names, ..self.config.origins };
        Config { origins, ..self.config }
    }

    /// Reads the main file and what it includes.
    pub(crate) fn load(&mut self, file: &Path, text: &str, format: Format) {
        self.file(file, text, format, true);
        for spec in &mut self.config.servers {
            self.config.defaults.apply(spec);
        }
        self.check_pool(file);
    }

    /// Warns of more servers than processes that may live at once: each use of one ends another.
    fn check_pool(&self, file: &Path) {
        let processes =
            self.config.servers.iter().filter(|spec| matches!(spec.transport, Transport::Stdio(_)));
        let (servers, places) = (processes.count(), self.config.pool.max_processes);
        if servers > places && !self.log.has_error() {
            let place = self.places.get("pool.max_processes").cloned();
            let place = place.unwrap_or_else(|| Place { file: file.to_owned(), ..Place::default() });
            let message = format!("there are {servers} servers with a process and room for {places} at once");
            let hint = format!(
                "set `pool.max_processes = {servers}`; until then the least recently used idle one ends for another"
            );
            self.log.add(Severity::Warning, || {
                problem::at(Severity::Warning, place, "pool.max_processes", message, Some(hint))
            });
        }
    }

    fn file(&mut self, file: &Path, text: &str, format: Format, is_main: bool) {
        let document = Document::new(file, text);
        let places = RefCell::default();
        let mut scope = Scope {
            base: file.parent().unwrap_or(Path::new("")).to_owned(),
            home: self.source.home(),
            settings: self.source.settings(),
            ..Scope::new(&document, self.log, &places)
        };
        if let Some(root) = parse(&scope, format) {
            match shape(&scope, format, &root) {
                Shape::Own(table) => self.own(&scope, table, is_main),
                Shape::Client(table, servers) => {
                    scope.dialect = Dialect::Client;
                    scope.base = client_base(&scope.base);
                    scope.inputs = clients::inputs(table);
                    self.client(&scope, table, servers);
                }
                Shape::Nothing => {}
            }
        }
        self.places.extend(places.into_inner());
    }

    /// Ostler's own file. Of an included one, only the servers are taken.
    fn own(&mut self, scope: &Scope<'_>, table: &Table, is_main: bool) {
        let reader = Reader::open(scope, Config::SECTION, "", Span::default(), table);
        reader.count("version");
        for entry in self.few(scope, reader.named("servers")) {
            self.own_server(scope, entry);
        }
        let include = reader.texts("include").unwrap_or_default();
        if is_main {
            for (text, node) in include {
                self.include(scope, text, node);
            }
        } else {
            refuse_all_but_servers(&reader);
        }
        *scope.servers.borrow_mut() = self.names.keys().cloned().collect();
        self.config.fill(&reader);
        reader.finish();
    }

    /// As many servers as there is room for; that there are more is reported.
    fn few<'e>(&self, scope: &Scope<'_>, mut entries: Vec<&'e Entry>) -> Vec<&'e Entry> {
        let room = MOST_SERVERS - self.names.len().min(MOST_SERVERS);
        if let Some(beyond) = entries.get(room) {
            scope.error(
                beyond.key_at,
                "servers",
                format!("there are more than {MOST_SERVERS} servers"),
                None,
            );
            entries.truncate(room);
        }
        entries
    }

    fn own_server(&mut self, scope: &Scope<'_>, entry: &Entry) {
        let path = format!("servers.{}", entry.key);
        let name = match ServerName::new(&entry.key) {
            Ok(name) => name,
            Err(error) => {
                let hint = slug(&entry.key).map(|name| format!("call it `{name}`"));
                return scope.error(entry.key_at, &path, format!("{}: {error}", quote(&entry.key)), hint);
            }
        };
        let Some(table) = entry.node.as_table() else {
            let message = format!("`{path}` wants a table, found {}", entry.node.describe());
            return scope.error(entry.node.at, &path, message, None);
        };
        self.add(scope, name, entry.key_at, table);
    }

    /// Another client's file: only its servers are read.
    fn client(&mut self, scope: &Scope<'_>, root: &Table, servers: &Entry) {
        for entry in &root.entries {
            warn_of_ignored(scope, servers, entry);
        }
        let Some(table) = servers.node.as_table() else {
            let message = format!("`{}` wants a table, found {}", servers.key, servers.node.describe());
            return scope.error(servers.node.at, "servers", message, None);
        };
        // Names that fit are kept, whatever else is slugged to the same.
        let mut taken: BTreeSet<_> =
            table.entries.iter().filter_map(|entry| ServerName::new(&entry.key).ok()).collect();
        let mut seen = BTreeMap::new();
        for entry in self.few(scope, table.entries.iter().collect()) {
            if let Some(first) = seen.insert(entry.key.as_str(), entry.key_at) {
                let line = scope.line(first);
                let message =
                    format!("the server {} is given twice, first in line {line}", quote(&entry.key));
                scope.error(entry.key_at, "servers", message, "keep one of them");
            } else if let Some(name) = client_name(scope, entry, &mut taken) {
                self.client_server(scope, name, entry);
            }
        }
    }

    fn client_server(&mut self, scope: &Scope<'_>, name: ServerName, entry: &Entry) {
        let path = format!("servers.{name}");
        match entry.node.as_table() {
            None => {
                let message = format!("`{path}` wants a table, found {}", entry.node.describe());
                scope.error(entry.node.at, &path, message, None);
            }
            Some(theirs) => {
                if let Some(table) = clients::translate(scope, &path, entry.key_at, theirs) {
                    self.add(scope, name, entry.key_at, &table);
                }
            }
        }
    }

    fn add(&mut self, scope: &Scope<'_>, name: ServerName, at: Span, table: &Table) {
        let path = format!("servers.{name}");
        if let Some(first) = self.names.get(&name) {
            let message =
                format!("the server `{name}` is also given in {}:{}", first.file.display(), first.line);
            return scope.error(at, &path, message, "rename or remove one of them");
        }
        self.names.insert(name.clone(), scope.place(at));
        if let Some(flag) = table.get("disabled").filter(|entry| entry.node.value == Value::Flag(true)) {
            return self.disable(scope, name, flag, table);
        }
        let spec = server::read(scope, name.clone(), at, table).map(|spec| self.in_folder(scope, spec));
        match scope.unresolved.take() {
            Some(Unresolved { cause, remedy }) => {
                let spec = spec.unwrap_or_else(|| ServerSpec::stdio(name, "").lazy());
                self.config.disabled.push(Disabled { spec, cause, remedy });
            }
            None => self.config.servers.extend(spec),
        }
    }

    /// Gives a process without a working directory the folder of its file, wherever its host is started.
    fn in_folder(&mut self, scope: &Scope<'_>, mut spec: ServerSpec) -> ServerSpec {
        if let Transport::Stdio(process) = &mut spec.transport
            && process.cwd.is_none()
            && scope.base.is_absolute()
        {
            process.cwd = Some(scope.base.clone());
            self.config.origins.in_own_folder.insert(spec.name.clone());
        }
        spec
    }

    /// Keeps a server that is not to be run. Mistakes in it harm nothing until it is.
    fn disable(&mut self, scope: &Scope<'_>, name: ServerName, flag: &Entry, table: &Table) {
        let log = Log::default();
        let unheard = Scope { log: &log, ..scope.clone() };
        let spec = server::read(&unheard, name.clone(), flag.key_at, table);
        let spec = spec.unwrap_or_else(|| ServerSpec::stdio(name, "").lazy());
        let Place { file, line, .. } = scope.place(flag.key_at);
        let cause = format!("{}:{line} says so", file.display());
        let remedy = format!("remove `{}` there to enable it", disabling(scope, flag));
        self.config.disabled.push(Disabled { spec, cause, remedy });
    }

    fn include(&mut self, scope: &Scope<'_>, text: &str, node: &Node) {
        let file = match scope.absolute(Path::new(text)) {
            Ok(file) => file,
            Err(why) => return scope.error(node.at, "include", why, None),
        };
        let Some(format) = Format::of(&file) else {
            let message = format!("{} can't be included: its format is not known", quote(text));
            return scope.error(node.at, "include", message, "files end in .toml, .json or .jsonc");
        };
        match self.source.read(&file) {
            Ok(text) => self.file(&file, &text, format, false),
            Err(error) => {
                let message = format!("{} can't be read: {error}", quote(text));
                scope.error(node.at, "include", message, "paths are relative to this file");
            }
        }
    }
}

/// The key that disables a server and its value, as the file spells them.
fn disabling(scope: &Scope<'_>, flag: &Entry) -> String {
    let Span { start, .. } = flag.key_at;
    let line = scope.document.text.get(start..).and_then(|rest| rest.split(['\n', ',', '}', '#']).next());
    line.unwrap_or("disabled").trim().to_owned()
}

/// The tree of a file, unless it is too large or not of its format.
fn parse(scope: &Scope<'_>, format: Format) -> Option<Node> {
    let text = scope.document.text;
    if text.len() as u64 > LARGEST_FILE {
        scope.error(Span::default(), "", format!("the file is larger than {} MiB", LARGEST_FILE >> 20), None);
        return None;
    }
    let (parsed, hint) = match format {
        Format::Toml => {
            (toml::parse(text), "a server is [servers.NAME], with `command = \"…\"` on a line below")
        }
        Format::Json => {
            (json::parse(text), "see that each `{`, `[` and `\"` is closed, and commas stand between members")
        }
    };
    parsed.map_err(|error| scope.error(error.at, "", error.message, Some(hint.into()))).ok()
}

/// Whose file it is, by what stands in it.
enum Shape<'a> {
    Own(&'a Table),
    /// The whole file, and where its servers stand.
    Client(&'a Table, &'a Entry),
    /// Neither, which has been reported.
    Nothing,
}

fn shape<'a>(scope: &Scope<'_>, format: Format, root: &'a Node) -> Shape<'a> {
    let Some(table) = root.as_table() else {
        scope.error(root.at, "", format!("the file wants to be a table, found {}", root.describe()), None);
        return Shape::Nothing;
    };
    if format == Format::Toml {
        return Shape::Own(table);
    }
    if let Some(servers) = clients::servers(table) {
        return Shape::Client(table, servers);
    }
    let is_own =
        table.entries.is_empty() || table.entries.iter().any(|e| Config::SECTION.field(&e.key).is_some());
    if is_own {
        return Shape::Own(table);
    }
    let hint = "servers stand under `mcpServers`; Ostler's own file begins with `version`";
    scope.error(root.at, "", "the file has no `mcpServers` and is not one of Ostler's", hint);
    Shape::Nothing
}

fn client_base(directory: &Path) -> PathBuf {
    let is_clients =
        directory.file_name().is_some_and(|name| CLIENT_DIRECTORIES.iter().any(|known| name == *known));
    match directory.parent() {
        Some(above) if is_clients => above.to_owned(),
        _ => directory.to_owned(),
    }
}

/// The name of another client's server, slugged if it has to be.
fn client_name(scope: &Scope<'_>, entry: &Entry, taken: &mut BTreeSet<ServerName>) -> Option<ServerName> {
    if let Ok(name) = ServerName::new(&entry.key) {
        return Some(name);
    }
    let Some(name) = free_slug(&entry.key, taken) else {
        let message = format!(
            "the name {} has no letter or digit that could stand in a server's name",
            quote(&entry.key)
        );
        scope.error(entry.key_at, "servers", message, "server names are made of a-z, 0-9, `-` and `_`");
        return None;
    };
    taken.insert(name.clone());
    let message = format!("the server {} is called `{name}` here", quote(&entry.key));
    scope.warn(entry.key_at, &format!("servers.{name}"), message, None);
    Some(name)
}

/// Ostler's own keys at the top of another client's file do nothing, and that must be said.
fn warn_of_ignored(scope: &Scope<'_>, servers: &Entry, entry: &Entry) {
    let is_ours = Config::SECTION.field(&entry.key).is_some() && entry.key != "version";
    if !is_ours || entry.key_at == servers.key_at {
        return;
    }
    let message = format!("`{}` is not read in a file with `{}`", entry.key, servers.key);
    let hint = "write an ostler.toml that has it, with this file under `include`";
    // A rule that is silently not enforced is worse than a file that is refused.
    if entry.key == "roles" || entry.key == "auth" {
        scope.error(entry.key_at, &entry.key, message, hint);
    } else {
        scope.warn(entry.key_at, &entry.key, message, hint);
    }
}

fn refuse_all_but_servers(reader: &Reader<'_>) {
    for field in Config::SECTION.fields().filter(|field| !matches!(field.key, "version" | "servers")) {
        if reader.has(field.key) {
            let message = format!("`{}` in an included file: only its servers are taken", field.key);
            reader.scope.error(reader.at_of(field.key), field.key, message, "move it to the main file");
        }
    }
}

/// The slug, numbered if it is already taken: `time`, `time-2`, `time-3`.
pub(crate) fn free_slug(text: &str, taken: &BTreeSet<ServerName>) -> Option<ServerName> {
    let name = slug(text)?;
    if !taken.contains(&name) {
        return Some(name);
    }
    // As many numbers as names, and one name has no number: so one is free.
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
        assert_eq!(free_slug("Time", &taken).unwrap().as_str(), "time-3");
        let long = BTreeSet::from([ServerName::new(&"x".repeat(32)).unwrap()]);
        assert_eq!(free_slug(&"X".repeat(40), &long).unwrap().as_str(), format!("{}-2", "x".repeat(30)));
    }
}
