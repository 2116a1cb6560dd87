# requests or httpx, whichever the interpreter has: callers_python.py URL HTTPS_URL. Bodies come back as they were sent.
import sys

url, secure = sys.argv[1:]
body = b"abcdefg" * 50_000


def pieces():
    for start in range(0, len(body), 10_000):
        yield body[start : start + 10_000]


def exchange(client, url):
    for content in (body, pieces):
        for _ in range(3):
            answer = client(url + "/echo", content() if callable(content) else content)
            assert answer.status_code == 200 and answer.content == body, answer


try:
    import httpx
except ImportError:
    import requests

    requests.packages.urllib3.disable_warnings()
    for target in (url, secure):
        with requests.Session() as session:
            session.trust_env = False
            exchange(lambda url, body: session.post(url, data=body, verify=False, timeout=300), target)
else:
    for target, version, http1 in ((url, "HTTP/1.1", True), (url, "HTTP/2", False), (secure, "HTTP/2", True)):
        http2 = version == "HTTP/2"
        with httpx.Client(http1=http1, http2=http2, verify=False, trust_env=False, timeout=300) as client:
            exchange(lambda url, body: client.post(url, content=body), target)
            assert client.get(target + "/echo").http_version == version
print("done")
