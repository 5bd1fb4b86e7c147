# A socket that is read on a thread of its own, so that its sender need not wait for whoever decodes.

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <poll.h>
    #include <sched.h>
    #include <sys/socket.h>
    #include <time.h>
    static int64_t hr_load(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static void hr_store(int64_t *p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static void hr_sleep_us(int64_t us) {
        struct timespec t = {us / 1000000, (us % 1000000) * 1000};
        nanosleep(&t, 0);
    }
    static int64_t hr_recv(int fd, void *to, size_t size) {
        ssize_t got = recv(fd, to, size, 0);
        if (got > 0) return got;
        if (got == 0) return -EPIPE;
        return errno == EWOULDBLOCK || errno == EINTR ? -EAGAIN : -errno;
    }
    static int hr_readable(int fd, int timeout_ms) {
        struct pollfd one = {fd, POLLIN, 0};
        return poll(&one, 1, timeout_ms);
    }
    #ifdef __linux__
    static int64_t hr_here(void) { return sched_getcpu(); }
    static void hr_stay_on(int64_t processor) {
        cpu_set_t one;
        if (processor < 0 || processor >= CPU_SETSIZE) return;
        CPU_ZERO(&one);
        CPU_SET(processor, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    #else
    static int64_t hr_here(void) { return -1; }
    static void hr_stay_on(int64_t processor) { (void) processor; }
    #endif
    """
    int EAGAIN
    int64_t hr_load(const int64_t *p)
    void hr_store(int64_t *p, int64_t v)
    void hr_sleep_us(int64_t us)
    int64_t hr_recv(int fd, void *to, size_t size)
    int hr_readable(int fd, int timeout_ms)
    int64_t hr_here()
    void hr_stay_on(int64_t processor)

cdef enum:
    RUNNING = -1
    QUIET = 0


cdef class NativeIntake:
    """A ring of bytes between two threads: `run` fills it from a socket on one, `take` empties it on the other."""

    cdef int _fd
    cdef uint8_t *_ring
    cdef int64_t _size, _filled, _taken, _ended, _left, _stopped, _taker

    def __cinit__(self, int fd, Py_ssize_t size):
        self._fd = fd
        self._size = size
        self._ring = <uint8_t *> malloc(size)
        if self._ring == NULL:
            raise MemoryError
        self._ended = QUIET
        self._taker = -1

    def __dealloc__(self):
        free(self._ring)

    @property
    def running(self):
        """Whether `run` is under way, or bytes of it are left."""
        return hr_load(&self._ended) == RUNNING or hr_load(&self._filled) != self._taken

    @property
    def error(self):
        """What ended `run`: 0 when nothing came for a while, else the system's number of the error."""
        return hr_load(&self._ended)

    def begin(self):
        """Say that `run` is about to be called."""
        hr_store(&self._left, 0)
        hr_store(&self._ended, RUNNING)

    def leave(self):
        """Let `run` return with the next bytes that come, which stay in the socket."""
        hr_store(&self._left, 1)

    def stop(self):
        """Let `run` return soon."""
        hr_store(&self._stopped, 1)

    def run(self, int64_t gather_us, int64_t prompt_us, int prompt_reads, int quiet_ms, bint follow):
        """Read until nothing comes for ``quiet_ms``, the socket fails, `leave` or `stop`.

        Args:
            gather_us: pause after each read.
            prompt_us: pause after the first ``prompt_reads`` of those that find something, and behind each lull.
            prompt_reads: how many.
            quiet_ms: longest lull.
            follow: stay on the processor on which `take` was last called; the thread's choice is not widened again.
        """
        cdef int64_t got = 0, at, room, full_us = 1000, here = -1, taker
        cdef int prompt = prompt_reads
        with nogil:
            while not hr_load(&self._stopped) and not hr_load(&self._left):
                taker = hr_load(&self._taker)
                if follow and taker != here:
                    hr_stay_on(taker)
                    here = taker
                at = self._filled % self._size
                room = self._size - (self._filled - hr_load(&self._taken))
                if room > self._size - at:
                    room = self._size - at
                if not room:
                    # Whoever takes has stopped: look again less and less often.
                    hr_sleep_us(full_us)
                    full_us = min(2 * full_us, 20000)
                    continue
                full_us = 1000
                got = hr_recv(self._fd, self._ring + at, room)
                if got > 0:
                    hr_store(&self._filled, self._filled + got)
                    hr_sleep_us(gather_us if prompt == 0 else prompt_us)
                    prompt = max(0, prompt - 1)
                elif got != -EAGAIN or not hr_readable(self._fd, quiet_ms):
                    break
                else:
                    prompt = prompt_reads
            hr_store(&self._ended, QUIET if got == -EAGAIN or got > 0 else -got)

    def take(self, uint8_t[::1] to, Py_ssize_t least, int64_t wait_us):
        """Move bytes into ``to``; wait a while for ``least`` of them. Return how many there were."""
        cdef int64_t held, at, first, waited = 0
        cdef Py_ssize_t room = to.shape[0]
        if not room:
            return 0
        with nogil:
            hr_store(&self._taker, hr_here())
            while True:
                held = hr_load(&self._filled) - self._taken
                if held >= least or waited >= wait_us or hr_load(&self._ended) != RUNNING:
                    break
                hr_sleep_us(1000)
                waited += 1000
            # Once more: what came just before the end counts.
            held = hr_load(&self._filled) - self._taken
            if held > room:
                held = room
            at = self._taken % self._size
            first = min(held, self._size - at)
            memcpy(&to[0], self._ring + at, first)
            memcpy(&to[0] + first, self._ring, held - first)
            hr_store(&self._taken, self._taken + held)
        return held
