/* transfer - two processes and one text: one publishes versions of it, the other takes the newest, whole.
 *     cc transfer.c $(pkg-config --cflags --libs ashlar) -o transfer
 *     ./transfer publish DESCRIPTION       every line of its input is a version, until the input ends
 *     ./transfer take DESCRIPTION          prints the newest one
 * DESCRIPTION is a file that says where the text is; any other way to send its bytes will do. */
#include <ashlar/transfer.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES 4096

/* Wait for a line, and answer other processes meanwhile. Returns false at the end of the input. */
static bool read_line(struct ash_port *port, char *line, int room)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    struct ash_port_event event;

    do
        ash_port_poll(port, &event, 1);
    while (poll(&input, 1, 50) == 0);
    return fgets(line, room, stdin) != NULL;
}

static int write_description(const struct ash_port_description *description, const char *path, struct ash_err *err)
{
    FILE *file = fopen(path, "wb");

    if (file == NULL) return ash_err_set(err, -errno, "cannot write %s: %s", path, strerror(errno));
    fwrite(description->bytes, 1, sizeof(description->bytes), file);
    return fclose(file) == 0 ? 0 : ash_err_set(err, -EIO, "cannot write %s", path);
}

static int publish(struct ash_port *port, const char *path, struct ash_err *err)
{
    struct ash_port_memory *memory = NULL;
    struct ash_port_description description;
    uint64_t version = 0;
    int rc = ash_port_register_versions(port, TEXT_BYTES, &memory, err);

    if (rc < 0) return rc;
    ash_port_describe(port, memory, &description);
    rc = write_description(&description, path, err);
    setvbuf(stdin, NULL, _IONBF, 0); /* so that poll sees what is left of the input */
    while (rc == 0 && read_line(port, ash_port_memory_data(memory), TEXT_BYTES)) {
        rc = ash_port_publish(memory, strlen(ash_port_memory_data(memory)), ++version);
        printf("version %llu\n", (unsigned long long)version);
        fflush(stdout);
    }
    ash_port_memory_close(memory);
    return rc;
}

static int read_description(struct ash_port_description *description, const char *path, struct ash_err *err)
{
    FILE *file = fopen(path, "rb");
    size_t got;

    if (file == NULL) return ash_err_set(err, -errno, "cannot read %s: %s", path, strerror(errno));
    got = fread(description->bytes, 1, sizeof(description->bytes), file);
    fclose(file);
    return got == sizeof(description->bytes) ? 0 : ash_err_set(err, -EPROTO, "%s is no description of memory", path);
}

/* Take the newest version; again if it was overwritten meanwhile. */
static int take_newest(struct ash_port *port, struct ash_port_remote *remote, struct ash_port_memory *memory)
{
    struct ash_port_event event = {0};
    int rc;

    do {
        rc = ash_port_take(port, remote, memory, 1);
        while (rc == 0 && (ash_port_wait(port, &event, 1, 1) == 0 || event.kind != ASH_PORT_DONE))
            ;
        if (rc == 0) rc = event.status;
    } while (rc == -EAGAIN);
    return rc;
}

static int take(struct ash_port *port, const char *path, struct ash_err *err)
{
    struct ash_port_description description;
    struct ash_port_remote *remote = NULL;
    struct ash_port_memory *memory = NULL;
    int rc = read_description(&description, path, err);

    if (rc == 0) rc = ash_port_attach(port, &description, &remote, err);
    if (rc == 0) rc = ash_port_register_versions(port, ash_port_remote_bytes(remote), &memory, err);
    if (rc == 0) {
        rc = take_newest(port, remote, memory);
        if (rc < 0) ash_err_set(err, rc, "nothing could be taken: %s", strerror(-rc));
    }
    if (rc == 0) {
        uint64_t version;
        size_t bytes;
        const char *text = ash_port_version(memory, &bytes, &version);

        printf("%llu: %.*s", (unsigned long long)version, (int)bytes, text);
    }
    ash_port_memory_close(memory);
    ash_port_detach(remote);
    return rc;
}

int main(int argc, char **argv)
{
    struct ash_port *port = NULL;
    struct ash_err err = {0};
    bool publishes = argc == 3 && strcmp(argv[1], "publish") == 0;
    int rc;

    if (!publishes && (argc != 3 || strcmp(argv[1], "take") != 0)) {
        fprintf(stderr, "usage: %s publish|take DESCRIPTION\n", argv[0]);
        return 2;
    }
    rc = ash_port_open(NULL, &port, &err);
    if (rc == 0) rc = publishes ? publish(port, argv[2], &err) : take(port, argv[2], &err);
    ash_port_close(port);
    if (rc < 0) fprintf(stderr, "%s: %s\n", argv[0], err.text);
    return rc < 0 ? 1 : 0;
}
