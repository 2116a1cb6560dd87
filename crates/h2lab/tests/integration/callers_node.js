// Node's http, fetch and http2: node callers_node.js URL. Bodies come back as they were sent, over kept connections, with trailers.
const http = require('node:http');
const http2 = require('node:http2');
const url = new URL(process.argv[2]);
const body = Buffer.alloc(300_000, 'abcdefg');
const agent = new http.Agent({ keepAlive: true, maxSockets: 2 });

const expect = (is, what) => {
  if (!is) throw new Error(what);
};

const overHttp1 = chunked => new Promise((done, fail) => {
  const headers = chunked ? {} : { 'content-length': body.length };
  const request = http.request(new URL('/echo', url), { method: 'POST', agent, headers }, response => {
    const pieces = [];
    response.on('data', piece => pieces.push(piece));
    response.on('error', fail);
    response.on('end', () => {
      expect(Buffer.concat(pieces).equals(body), 'HTTP/1.1: the body');
      expect(response.trailers['x-digest'], 'HTTP/1.1: trailers');
      done();
    });
  });
  request.on('error', fail);
  request.write(body.subarray(0, 100));
  request.end(body.subarray(100));
});

const overHttp2 = session => new Promise((done, fail) => {
  const stream = session.request({ ':method': 'POST', ':path': '/echo' });
  const pieces = [];
  let digest;
  stream.on('data', piece => pieces.push(piece));
  stream.on('trailers', fields => { digest = fields['x-digest']; });
  stream.on('error', fail);
  stream.on('end', () => {
    expect(Buffer.concat(pieces).equals(body), 'HTTP/2: the body');
    expect(digest, 'HTTP/2: trailers');
    done();
  });
  stream.end(body);
});

(async () => {
  await Promise.all([...Array(8).keys()].map(n => overHttp1(n % 2 === 1)));
  const answer = await fetch(new URL('/echo', url), { method: 'POST', body });
  expect(Buffer.from(await answer.arrayBuffer()).equals(body), 'fetch: the body');
  const session = http2.connect(url);
  await Promise.all([...Array(20).keys()].map(() => overHttp2(session)));
  session.close();
  agent.destroy();
  console.log('done');
})().catch(error => {
  console.error(error);
  process.exit(1);
});
