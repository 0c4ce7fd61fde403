// One of the TypeScript SDKs, in front of a program that it starts.
//
// usage: stdio_typescript.mjs 1|2-legacy|2-modern TOOL CALLS COMMAND ARGUMENT…
//
// The SDKs pass HOME, PATH and four more variables to the program and no others. Prints a JSON object: the names of
// the tools, and for each call the text of its answer or of its error.

const [release, name, calls, command, ...args] = process.argv.slice(2);

async function connected() {
    const is1 = release === '1';
    const { Client } = await import(is1 ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
    const { StdioClientTransport } = await import(is1 ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio');
    const mode = release === '2-modern' ? 'auto' : 'legacy';
    const client = new Client({ name: 'stdio', version: '1' }, is1 ? {} : { versionNegotiation: { mode } });
    await client.connect(new StdioClientTransport({ command, args }));
    return client;
}

const client = await connected();
const answers = [];
for (let call = 0; call < Number(calls); call += 1) {
    try {
        answers.push((await client.callTool({ name, arguments: {} })).content[0].text);
    } catch (error) {
        answers.push(String(error.message));
    }
}
const { tools } = await client.listTools();
console.log(JSON.stringify({ tools: tools.map(item => item.name), answers }));
await client.close();
process.exit(0);
