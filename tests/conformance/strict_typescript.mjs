// One of the TypeScript SDKs, in front of a list with odd definitions.
//
// usage: strict_typescript.mjs 1|2-legacy|2-modern URL [TOOL]
//
// Prints a JSON object: the names that the SDK lists, by kind, and the text that TOOL answers, where one is named.

const [which, url, tool] = process.argv.slice(2);

async function connected() {
    if (which === '1') {
        const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
        const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
        const client = new Client({ name: 'strict', version: '1' });
        await client.connect(new StreamableHTTPClientTransport(new URL(url)));
        return client;
    }
    const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
    const mode = which === '2-modern' ? 'auto' : 'legacy';
    const client = new Client({ name: 'strict', version: '2' }, { versionNegotiation: { mode } });
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    return client;
}

const client = await connected();
const found = {
    tools: (await client.listTools()).tools.map(item => item.name),
    prompts: (await client.listPrompts()).prompts.map(item => item.name),
    resources: (await client.listResources()).resources.map(item => item.uri),
    templates: (await client.listResourceTemplates()).resourceTemplates.map(item => item.uriTemplate),
};
if (tool) {
    found.said = (await client.callTool({ name: tool, arguments: { n: 1 } })).content[0].text;
}
console.log(JSON.stringify(found));
await client.close();
process.exit(0);
