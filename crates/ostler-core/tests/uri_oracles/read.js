// Reads file URIs as Node programs do: a JSON array of URIs per line in, a JSON array of path lists out.
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

require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const answers = JSON.parse(line).map((uri) => {
    const paths = readings(uri).filter((text) => !text.includes("\0")).map(resolved);
    return [...new Set(paths)].sort();
  });
  console.log(JSON.stringify(answers));
});
