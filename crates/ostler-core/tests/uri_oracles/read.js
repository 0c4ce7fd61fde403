// Reads URIs as Node programs do: a JSON array of URIs per line in, a JSON array of lists out.
// The lists are of paths of `file` URIs, or, with the argument `hosts`, of `SCHEME://HOST/PATH` without parameters.
const path = require("path");
const { fileURLToPath } = require("url");

const attempt = (read) => { try { return [read()]; } catch { return []; } };

function readings(uri) {
  const found = [];
  const add = (text) => {
    const once = attempt(() => decodeURIComponent(text));
    found.push(text, unescape(text), ...attempt(() => decodeURI(text)), ...once);
    for (const decoded of once) found.push(...attempt(() => decodeURIComponent(decoded)));
  };
  for (const text of [uri, uri.trim(), ...attempt(() => decodeURIComponent(uri))]) {
    for (const url of attempt(() => new URL(text))) {
      if (url.protocol !== "file:") continue;
      add(url.pathname);
      add(url.host + url.pathname);
      add(path.posix.normalize(url.pathname));
      found.push(...attempt(() => fileURLToPath(url)), ...attempt(() => fileURLToPath(text)));
    }
  }
  for (const prefix of ["file://", "file:"]) if (uri.startsWith(prefix)) add(uri.slice(prefix.length));
  return found;
}

// The file that opening the path from the root folder would open.
const resolved = (text) => path.posix.resolve("/", "./" + text);

function places(uri) {
  const found = [];
  const decoded = (text) => [text, ...attempt(() => decodeURIComponent(text))];
  for (const text of [uri.trim(), ...decoded(uri).flatMap(decoded)]) {
    for (const url of attempt(() => new URL(text))) {
      const hosts = decoded(url.hostname).flatMap((host) => [host, host.toLowerCase()]);
      const each = url.pathname.split("/").map((name) => name.split(";")[0]).join("/");
      const paths = [url.pathname, url.pathname.split(";")[0], each].flatMap(decoded).flatMap(decoded);
      for (const host of hosts) {
        for (const place of paths) found.push(`${url.protocol}//${host.replace(/\.+$/, "")}${resolved(place)}`);
      }
    }
  }
  return [...new Set(found)];
}

const paths = (uri) => readings(uri).filter((text) => !text.includes("\0")).map(resolved);
const read = process.argv.includes("hosts") ? places : paths;

require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const answers = JSON.parse(line).map((uri) => [...new Set(read(uri))].sort());
  console.log(JSON.stringify(answers));
});
