//! Lookup of typed names among the items that servers list.
//!
//! `wx__forecast` is the name of a tool. `wx.forecast`, `wx/forecast`, `wx:forecast` and `wx forecast` mean the same,
//! and so does `forecast` where one server alone has it. A name that fits two items is an error.

use ostler_core::catalog::{exposed_name, nearest};
use ostler_core::error::CallError;
use ostler_core::server_name::ServerName;
use ostler_host::{ListedTool, ServerTools};

use crate::client::{Backend, Deadline, ListPurpose, RequestFailure};
use crate::failure::CommandFailure;
use crate::invocation::command;
use crate::output::{self, escape_line};

/// Separators that people type between a server and one of its tools. None but `__` can be part of a server's name.
const SEPARATORS: [&str; 5] = ["__", ".", "/", ":", " "];

/// Returns every way to read a text as a server and the name of one of its items.
pub(crate) fn split_candidates<'s, 't>(
    servers: &'s [ServerName],
    text: &'t str,
) -> Vec<(&'s ServerName, &'t str)> {
    let reading = |server: &'s ServerName| {
        let rest = text.strip_prefix(server.as_str())?;
        let item = SEPARATORS.iter().find_map(|separator| rest.strip_prefix(separator))?;
        Some((server, item)).filter(|_| !item.is_empty())
    };
    servers.iter().filter_map(reading).collect()
}

/// Returns every spelling of a server's item.
pub(super) fn spellings(server: &ServerName, item: &str) -> [String; 5] {
    SEPARATORS.map(|separator| format!("{server}{separator}{item}"))
}

/// Returns the part before the first separator, if there is one.
pub(super) fn server_part(text: &str) -> Option<&str> {
    let first = SEPARATORS.iter().filter_map(|separator| text.find(separator)).min()?;
    Some(&text[..first]).filter(|server| !server.is_empty())
}

/// Item of a server, with all its names.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedItem<'a> {
    /// Exposed name, as the host tells it.
    pub(super) exposed: &'a str,
    pub(super) server: &'a ServerName,
    /// Name that the server itself uses.
    pub(super) item: &'a str,
}

impl<'a> From<&'a ListedTool> for NamedItem<'a> {
    fn from(listed: &'a ListedTool) -> Self {
        Self { exposed: &listed.exposed_name, server: &listed.server, item: &listed.tool.name }
    }
}

/// Returns the index of the item that a name means. A match with a server prefix takes precedence over a bare name.
///
/// # Errors
///
/// Fails if the name fits several rows, and names them.
pub(super) fn find_item(
    rows: &[NamedItem<'_>],
    servers: &[ServerName],
    text: &str,
) -> Result<Option<usize>, CommandFailure> {
    if let Some(found) = rows.iter().position(|row| row.exposed == text) {
        return Ok(Some(found));
    }
    let readings = split_candidates(servers, text);
    let at = |fits: &dyn Fn(&NamedItem<'_>) -> bool| -> Vec<usize> {
        rows.iter().enumerate().filter(|(_, row)| fits(row)).map(|(at, _)| at).collect()
    };
    let named = at(&|row| readings.contains(&(row.server, row.item)));
    let bare = at(&|row| row.item == text);
    for fitting in [named, bare] {
        match fitting.as_slice() {
            [] => {}
            [only] => return Ok(Some(*only)),
            several => {
                let names = output::quote_names(several.iter().map(|at| rows[*at].exposed));
                return Err(CommandFailure::Usage {
                    what: format!("`{}` can mean {names}", escape_line(text)),
                    hint: Some(format!(
                        "write the whole name, such as `{}`",
                        escape_line(rows[several[0]].exposed)
                    )),
                });
            }
        }
    }
    Ok(None)
}

/// Returns the error for an unknown name, with the nearest name of these items.
pub(super) fn unknown_item(rows: &[NamedItem<'_>], text: &str) -> CallError {
    let written = SEPARATORS[1..].iter().fold(text.to_owned(), |text, other| text.replacen(other, "__", 1));
    let exposed = || rows.iter().map(|row| row.exposed);
    let by_own_name = || {
        let near = nearest(text, rows.iter().map(|row| row.item))?;
        rows.iter().find(|row| row.item == near).map(|row| row.exposed)
    };
    let near = nearest(&written, exposed()).or_else(by_own_name).or_else(|| nearest(text, exposed()));
    CallError::UnknownTool { name: text.to_owned(), nearest: near.map(str::to_owned) }
}

/// Finds the tool that a name means. Asks only the servers that the name can belong to; for a bare name, all.
pub(super) async fn find_tool(
    reach: &Backend,
    text: &str,
    (deadline, purpose): (Option<Deadline>, ListPurpose),
) -> Result<ListedTool, RequestFailure> {
    let servers = reach.all_servers().await?;
    let owners: Vec<&ServerName> =
        split_candidates(&servers, text).into_iter().map(|(server, _)| server).collect();
    if owners.is_empty() {
        return find_bare_tool(reach, &servers, text).await;
    }
    let (mut listed, mut failure) = (Vec::new(), None);
    for server in owners {
        match Deadline::bound(deadline, server, reach.list_tools(server.as_str(), purpose)).await {
            Ok(tools) => listed.extend(tools),
            Err(trouble) => failure = failure.or(Some(trouble)),
        }
    }
    let rows: Vec<NamedItem<'_>> = listed.iter().map(NamedItem::from).collect();
    match find_item(&rows, &servers, text)? {
        Some(at) => Ok(listed.swap_remove(at)),
        None => Err(failure.unwrap_or_else(|| unknown_item(&rows, text).into())),
    }
}

async fn find_bare_tool(
    reach: &Backend,
    servers: &[ServerName],
    text: &str,
) -> Result<ListedTool, RequestFailure> {
    if servers.iter().any(|server| server.as_str() == text) {
        let what = format!("`{text}` is a server, and no tool of it is named");
        let hint = Some(format!("{} lists its tools", command(&format!("tools {text}"))));
        return Err(CommandFailure::Usage { what, hint }.into());
    }
    if let Some((server, _)) = text.split_once("__") {
        return Err(CommandFailure::unknown_server(server, servers).into());
    }
    let found = reach.list_all_tools().await?;
    let silent: Vec<&ServerTools> = found.iter().filter(|one| one.tools.is_err()).collect();
    let listed: Vec<&ListedTool> = found.iter().filter_map(|one| one.tools.as_ref().ok()).flatten().collect();
    let rows: Vec<NamedItem<'_>> = listed.iter().copied().map(NamedItem::from).collect();
    let silent_names = || output::quote_names(silent.iter().map(|one| one.server.as_str()));
    match find_item(&rows, servers, text)?.map(|at| listed[at]) {
        Some(tool) if silent.is_empty() => Ok(tool.clone()),
        // The tool may belong to a server that is down.
        Some(tool) => Err(CommandFailure::Usage {
            what: format!(
                "it is not certain whose tool `{}` is: {} did not answer",
                escape_line(text),
                silent_names()
            ),
            hint: Some(format!("write the whole name, such as `{}`", escape_line(&tool.exposed_name))),
        }
        .into()),
        None => {
            let error = unknown_item(&rows, text);
            let server = server_part(text).unwrap_or(text);
            let is_tool = matches!(&error, CallError::UnknownTool { nearest: Some(_), .. });
            let is_server = nearest(server, servers.iter().map(ServerName::as_str)).is_some();
            match silent.is_empty() {
                _ if !is_tool && is_server => Err(CommandFailure::unknown_server(server, servers).into()),
                true => Err(error.into()),
                false => {
                    let cause = format!("no server that answered has it; {} did not", silent_names());
                    Err(CommandFailure::UnknownName { error, cause }.into())
                }
            }
        }
    }
}

/// Returns whether a text is a word without a separator, which may be the name of a server or of a tool.
pub(super) fn is_bare(text: &str) -> bool {
    server_part(text).is_none()
}

/// Returns whether a word without a separator resembles the name of a server.
pub(super) fn is_near_server(servers: &[ServerName], text: &str) -> bool {
    server_part(text).is_none() && nearest(text, servers.iter().map(ServerName::as_str)).is_some()
}

/// Returns the server and the tool into which an unknown name splits.
pub(super) fn implied_item(servers: &[ServerName], text: &str) -> Option<(ServerName, String)> {
    match split_candidates(servers, text).as_slice() {
        [(server, tool)] => {
            // The unshortened form of a name that is shown shortened is not its name.
            let is_whole = !text.contains("__") || exposed_name(server, tool) == text;
            is_whole.then(|| ((*server).clone(), (*tool).to_owned()))
        }
        [] => {
            let (server, tool) = text.split_once("__")?;
            Some((ServerName::new(server).ok()?, tool.to_owned()))
        }
        // An ambiguous name means neither.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ostler_core::catalog::ToolNameTable;

    use super::*;

    fn rows(table: &ToolNameTable) -> Vec<NamedItem<'_>> {
        let rows = table.iter();
        rows.map(|row| NamedItem { exposed: &row.exposed, server: &row.server, item: &row.tool }).collect()
    }

    fn meant(text: &str, tools: &[(&str, &str)]) -> Result<Option<String>, String> {
        let servers_and_tools =
            tools.iter().map(|(server, tool)| (ServerName::new(server).unwrap(), vec![(*tool).into()]));
        let mut servers: Vec<ServerName> = servers_and_tools.clone().map(|(server, _)| server).collect();
        servers.dedup();
        let table = ToolNameTable::new(servers_and_tools);
        let rows = self::rows(&table);
        let found = find_item(&rows, &servers, text).map_err(|failure| failure.to_string())?;
        Ok(found.map(|at| format!("{} {}", rows[at].server, rows[at].item)))
    }

    #[test]
    fn a_name_is_understood_as_people_write_it() {
        let tools = [("wx", "forecast"), ("wx", "a.b"), ("time", "now"), ("time", "wx.now")];
        for text in ["wx__forecast", "wx.forecast", "wx/forecast", "wx:forecast", "wx forecast", "forecast"] {
            assert_eq!(meant(text, &tools), Ok(Some("wx forecast".into())), "{text}");
        }
        assert_eq!(meant("wx.a.b", &tools), Ok(Some("wx a.b".into())));
        assert_eq!(meant("a.b", &tools), Ok(Some("wx a.b".into())));
        assert_eq!(meant("wx.now", &tools), Ok(Some("time wx.now".into())));
        assert_eq!(meant("wx.later", &tools), Ok(None));
        assert_eq!(meant("", &tools), Ok(None));
    }

    #[test]
    fn a_bare_name_that_two_servers_have_means_neither() {
        let said = meant("now", &[("a", "now"), ("b", "now")]).unwrap_err();
        assert_eq!(said, "`now` can mean `a__now`, `b__now`");
        let hijacked = [("wx", "forecast"), ("evil", "wx.forecast")];
        assert_eq!(meant("wx.forecast", &hijacked), Ok(Some("wx forecast".into())));
    }

    #[test]
    fn a_shortened_name_is_looked_up_and_not_taken_apart() {
        let long = "x".repeat(100);
        let short = exposed_name(&ServerName::new("time").unwrap(), &long);
        assert_eq!(meant(&short, &[("time", "now"), ("time", &long)]), Ok(Some(format!("time {long}"))));
    }

    #[test]
    fn a_name_that_two_servers_could_have_means_neither() {
        assert_eq!(meant("a___b", &[("a", "_b"), ("a_", "c")]), Ok(Some("a _b".into())));
        assert_eq!(meant("a___b", &[("a", "_c"), ("a_", "b")]), Ok(Some("a_ b".into())));
        assert!(meant("a___b", &[("a", "_b"), ("a_", "b")]).is_err());
    }

    #[test]
    fn a_typo_is_told_with_the_name_that_was_meant() {
        let wx = ServerName::new("wx").unwrap();
        let table = ToolNameTable::new([(wx, vec!["forecast".to_owned(), "get-sum".to_owned()])]);
        for (typed, near) in
            [("wx.forcast", "wx__forecast"), ("getsum", "wx__get-sum"), ("wx/get_sum", "wx__get-sum")]
        {
            let CallError::UnknownTool { nearest, .. } = unknown_item(&rows(&table), typed) else {
                panic!("{typed}")
            };
            assert_eq!(nearest.as_deref(), Some(near), "{typed}");
        }
    }
}
