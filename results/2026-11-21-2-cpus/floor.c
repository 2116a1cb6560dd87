/* The least that 10 x 10 requests over HTTP/2 in clear can cost: one read and one write per ten requests, edge-triggered,
 * no interest that changes, fixed bytes out, and of what comes in only END_STREAM and SETTINGS are looked at. No times, no
 * results, no errors: what is left is nearly all the kernel's. See bench-engine.md.
 *
 *     nghttpd --no-tls --address=127.0.0.1 --htdocs=FOLDER PORT    # FOLDER/small has six bytes
 *     cc -O2 -o floor floor.c && time ./floor PORT 600000
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { CONNECTIONS = 10, STREAMS = 10, DATA = 0, HEADERS = 1, SETTINGS = 4, END_STREAM = 1, ACK = 1 };

struct connection {
    int fd;
    unsigned next_stream;
    unsigned char header[9]; /* of the frame that is being read */
    int have;                /* octets of it */
    unsigned skip;           /* octets of the frame's payload still to come */
};

static int request(unsigned char *out, unsigned stream)
{
    static const unsigned char head[] = "\x82\x86\x04\x06/small\x01\x09" "127.0.0.1"; /* GET, http, :path, :authority */
    const unsigned char frame[9] = {0, 0, sizeof head - 1, HEADERS, 5, stream >> 24, stream >> 16, stream >> 8, stream};
    memcpy(out, frame, 9);
    memcpy(out + 9, head, sizeof head - 1);
    return 9 + sizeof head - 1;
}

/* Reads frames; how many streams ended, and whether SETTINGS are to be acknowledged. */
static int take(struct connection *c, const unsigned char *p, const unsigned char *end, int *settings)
{
    int ended = 0;
    while (p < end) {
        if (c->have < 9) {
            c->header[c->have++] = *p++;
            if (c->have < 9)
                continue;
            const unsigned char *h = c->header;
            c->skip = h[0] << 16 | h[1] << 8 | h[2];
            ended += (h[3] == DATA || h[3] == HEADERS) && (h[4] & END_STREAM);
            *settings |= h[3] == SETTINGS && !(h[4] & ACK);
        }
        unsigned n = end - p < c->skip ? end - p : c->skip;
        p += n;
        c->skip -= n;
        if (c->skip == 0)
            c->have = 0;
    }
    return ended;
}

int main(int argc, char **argv)
{
    static const unsigned char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        "\0\0\x06\x04\0\0\0\0\0\0\x04\x3f\xff\xff\xff"  /* SETTINGS_INITIAL_WINDOW_SIZE */
        "\0\0\x04\x08\0\0\0\0\0\x3f\xff\0\0";           /* WINDOW_UPDATE of the connection */
    static unsigned char in[1 << 16], out[4096];
    static struct connection all[CONNECTIONS];
    if (argc != 3)
        return 1;
    long wanted = atol(argv[2]), sent = 0, done = 0;
    int epoll = epoll_create1(0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &all[i];
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        c->next_stream = 1;
        if (connect(c->fd, (struct sockaddr *)&to, sizeof to))
            return 1;
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        int n = sizeof hello - 1;
        memcpy(out, hello, n);
        for (int k = 0; k < STREAMS; k++, c->next_stream += 2, sent++)
            n += request(out + n, c->next_stream);
        send(c->fd, out, n, MSG_NOSIGNAL);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.u32 = i};
        epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event);
    }
    while (done < wanted) {
        struct epoll_event events[256];
        int ready = epoll_wait(epoll, events, 256, -1);
        for (int k = 0; k < ready; k++) {
            struct connection *c = &all[events[k].data.u32];
            if (!(events[k].events & EPOLLIN))
                continue;
            int got = recv(c->fd, in, sizeof in, MSG_DONTWAIT), settings = 0, n = 0;
            if (got < 0 && errno == EAGAIN)
                continue;
            if (got <= 0)
                return 1;
            int ended = take(c, in, in + got, &settings);
            done += ended;
            if (settings) {
                memcpy(out, "\0\0\0\x04\x01\0\0\0\0", 9);
                n = 9;
            }
            for (; ended > 0 && sent < wanted; ended--, c->next_stream += 2, sent++)
                n += request(out + n, c->next_stream);
            if (n > 0)
                send(c->fd, out, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        }
    }
    printf("%ld answered\n", done);
    return 0;
}
