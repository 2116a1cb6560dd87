// A client on Node's http2: so many GETs of a URL, all at a time, on one session that is not opened again. With a third argument it
// asks by PING, every so many milliseconds, whether the server is still there.
const http2 = require('node:http2');

const [url, n] = [process.argv[2], Number(process.argv[3])];
const session = http2.connect(url);
let left = n;
let failed = 0;
session.on('error', (error) => console.error('session:', error.message));
const timer = process.argv[4] && setInterval(() => session.ping(() => {}), Number(process.argv[4]));
const done = (error) => {
  if (error) {
    failed += 1;
    console.error('request:', error.message);
  }
  left -= 1;
  if (left === 0) {
    clearInterval(timer);
    session.close();
    process.exitCode = failed > 0 ? 1 : 0;
  }
};
for (let i = 0; i < n; i += 1) {
  let settled = false;
  const once = (error) => {
    if (!settled) {
      settled = true;
      done(error);
    }
  };
  const request = session.request({ ':path': '/' });
  request.on('error', once);
  request.on('data', () => {});
  request.on('end', () => once(request.rstCode ? new Error(`reset with ${request.rstCode}`) : undefined));
  request.on('close', () => once(request.rstCode ? new Error(`reset with ${request.rstCode}`) : undefined));
  request.end();
}
