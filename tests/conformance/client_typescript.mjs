// The TypeScript SDK's client, in front of six servers behind one `/mcp`.
//
// usage: client_typescript.mjs legacy|modern|sse URL   with the checks' facts in $FACTS
//
// Prints `ok NAME` or `FAIL NAME: why` for each check.

import assert from 'node:assert/strict';
import { Client, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [era, url] = process.argv.slice(2);
const facts = JSON.parse(process.env.FACTS);
// Only a gateway that hangs makes anybody wait this long.
const PATIENCE = 20_000;
const questions = [];

const text = result => result.content.filter(block => block.type === 'text').map(block => block.text).join('\n');
const holds = (whole, part) => assert.ok(whole.includes(part), `no ${part} in ${JSON.stringify(whole)}`);
const client = new Client(
    { name: 'typescript', version: '1' },
    { capabilities: { elicitation: {} }, versionNegotiation: { mode: era === 'modern' ? 'auto' : 'legacy' } },
);
client.setRequestHandler('elicitation/create', async request => {
    questions.push(request.params.message);
    return { action: 'accept', content: { name: 'Ann', check: true } };
});
const call = async (name, args = {}, options = {}) => text(await client.callTool({ name, arguments: args }, options));

const checks = {
    async 'speaks its era'() {
        assert.equal(client.getNegotiatedProtocolVersion(), facts.versions[era]);
    },
    async 'lists the tools of every server'() {
        const names = (await client.listTools()).tools.map(tool => tool.name);
        assert.deepEqual(facts.tools.filter(name => !names.includes(name)), []);
    },
    async 'lists prompts and resources'() {
        holds((await client.listPrompts()).prompts.map(prompt => prompt.name), 'everything__args-prompt');
        holds((await client.listResources()).resources.map(resource => resource.uri), facts.resource);
        const templates = (await client.listResourceTemplates()).resourceTemplates;
        holds(templates.map(template => template.uriTemplate), facts.template);
    },
    async 'calls a tool of every server'() {
        holds(await call('time__get_current_time', { timezone: 'Asia/Tokyo' }), 'Asia/Tokyo');
        holds(await call('git__git_status', { repo_path: facts.repo }), 'untracked.txt');
        holds(await call('fetch__fetch', { url: facts.page }), 'oats and hay');
        assert.equal(await call('everything__echo', { message: 'häns & gret"l\n🐎' }), 'Echo: häns & gret"l\n🐎');
        const path = `${facts.files}/typescript-${era}.txt`;
        await call('files__write_file', { path, content: 'hay' });
        assert.equal(await call('files__read_text_file', { path }), 'hay');
        holds(await call('memory__read_graph'), 'entities');
    },
    async 'gets structured content'() {
        const name = 'everything__get-structured-content';
        const result = await client.callTool({ name, arguments: { location: 'New York' } });
        assert.deepEqual(Object.keys(result.structuredContent).sort(), ['conditions', 'humidity', 'temperature']);
    },
    async 'gets pictures'() {
        const result = await client.callTool({ name: 'everything__get-tiny-image', arguments: {} });
        holds(result.content.map(block => block.type), 'image');
    },
    async 'sees that a tool failed'() {
        const result = await client.callTool({ name: 'files__read_text_file', arguments: { path: '/etc/hostname' } });
        assert.equal(result.isError, true);
        holds(text(result), 'denied');
    },
    async 'hears that a tool does not exist'() {
        await assert.rejects(call('everything__nothing'), error => error.code === -32602);
    },
    async 'reads a resource'() {
        const { contents } = await client.readResource({ uri: facts.resource });
        assert.equal(contents[0].uri, facts.resource);
        assert.ok(contents[0].text.length > 100);
    },
    async 'reads a resource by template'() {
        const { contents } = await client.readResource({ uri: 'demo://resource/dynamic/text/7' });
        holds(contents[0].text, 'Resource 7');
    },
    async 'gets a prompt'() {
        const result = await client.getPrompt({ name: 'everything__args-prompt', arguments: { city: 'Berne' } });
        holds(result.messages[0].content.text, 'Berne');
    },
    async 'gets completions'() {
        const ref = { type: 'ref/prompt', name: 'everything__completable-prompt' };
        const { completion } = await client.complete({ ref, argument: { name: 'department', value: 'S' } });
        assert.deepEqual(completion.values.sort(), ['Sales', 'Support']);
    },
    async 'answers a question'() {
        questions.length = 0;
        const answer = await call('everything__trigger-elicitation-request');
        assert.equal(questions.length, 1);
        holds(answer, 'Ann');
    },
    async 'hears of progress'() {
        const heard = [];
        const onprogress = report => heard.push(report.progress);
        const name = 'everything__trigger-long-running-operation';
        holds(await call(name, { duration: 0.4, steps: 4 }, { onprogress }), 'completed');
        assert.deepEqual(heard, [...heard].sort());
        // The last report and the answer race in the server itself.
        assert.ok(heard.length >= 3, JSON.stringify(heard));
    },
    async 'cancels a call and goes on'() {
        const stop = new AbortController();
        const onprogress = () => stop.abort('enough');
        const options = { onprogress, signal: stop.signal };
        const name = 'everything__trigger-long-running-operation';
        await assert.rejects(call(name, { duration: 60, steps: 600 }, options), /enough/);
        assert.equal(await call('everything__echo', { message: 'on' }), 'Echo: on');
    },
};

const overdue = () => new Promise((_, reject) => setTimeout(reject, PATIENCE, new Error('took too long')).unref());
const Transport = era === 'sse' ? SSEClientTransport : StreamableHTTPClientTransport;
await client.connect(new Transport(new URL(url)));
let failed = 0;
for (const [name, check] of Object.entries(checks)) {
    try {
        await Promise.race([check(), overdue()]);
        console.log(`ok typescript, ${era}: ${name}`);
    } catch (problem) {
        failed += 1;
        console.log(`FAIL typescript, ${era}: ${name}: ${String(problem.message ?? problem).replaceAll('\n', ' ')}`);
    }
}
await client.close();
process.exit(failed ? 1 : 0);
