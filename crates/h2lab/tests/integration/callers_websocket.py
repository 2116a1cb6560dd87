# A WebSocket over HTTP/2 (RFC 8441) by Python's h2: callers_websocket.py HOST:PORT tls|clear. What is sent to /ws comes back.
import os
import socket
import ssl
import struct
import sys

import h2.config
import h2.connection
import h2.events
import h2.settings

authority, how = sys.argv[1:]
host, port = authority.rsplit(":", 1)
stream = socket.create_connection((host, int(port)), timeout=300)
if how == "tls":
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    stream = context.wrap_socket(stream, server_hostname="localhost")
    assert stream.selected_alpn_protocol() == "h2"
connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
connection.initiate_connection()
came, heads, ended, closed = bytearray(), [], False, False


def step():
    """Takes what comes, and says what that asks for."""
    global ended, closed
    stream.sendall(connection.data_to_send())
    piece = stream.recv(65_536)
    assert piece, "the connection has ended"
    for event in connection.receive_data(piece):
        if isinstance(event, h2.events.ResponseReceived):
            heads.append(dict(event.headers))
        elif isinstance(event, h2.events.DataReceived):
            came.extend(event.data)
            connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            ended = True
        elif isinstance(event, h2.events.StreamReset):
            # RFC 9113 section 8.1: all has been said, and nothing more is wanted.
            assert ended and event.error_code == 0, event
            closed = True
        else:
            assert not isinstance(event, h2.events.ConnectionTerminated), event
    stream.sendall(connection.data_to_send())


def send(data):
    while data:
        room = min(connection.local_flow_control_window(1), connection.max_outbound_frame_size)
        if room == 0:
            step()
            continue
        connection.send_data(1, data[:room])
        stream.sendall(connection.data_to_send())
        data = data[room:]


def message(opcode, payload):
    size = len(payload)
    length = bytes([128 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size) if size < 65_536 else b"\xff" + struct.pack(">Q", size)
    mask = os.urandom(4)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return bytes([128 | opcode]) + length + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


def take(count):
    while len(came) < count:
        step()
    taken = bytes(came[:count])
    del came[:count]
    return taken


def received():
    """The next message; it may come in several frames."""
    whole = b""
    while True:
        first, second = take(2)
        size = second & 127
        if size == 126:
            (size,) = struct.unpack(">H", take(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", take(8))
        whole += take(size)
        if first & 128:
            return whole


while not connection.remote_settings.get(h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL):
    step()
scheme = "https" if how == "tls" else "http"
asked = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", scheme), (":path", "/ws"), (":authority", authority)]
connection.send_headers(1, asked + [("sec-websocket-version", "13"), ("sec-websocket-protocol", "chat")])
while not heads:
    step()
assert heads[0][":status"] == "200" and heads[0]["sec-websocket-protocol"] == "chat", heads
for size in (0, 1, 125, 126, 65_536, 1_000_000):
    sent = bytes([size % 251]) * size
    send(message(2, sent))
    back = received()
    assert back == sent, f"{len(back)} bytes came back of {size}"
send(message(8, struct.pack(">H", 1000)))
assert received()[:2] == struct.pack(">H", 1000)
if not closed:
    connection.end_stream(1)
while not ended:
    step()
print("done")
