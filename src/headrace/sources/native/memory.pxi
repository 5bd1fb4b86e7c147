# Memory that grows without the interpreter.


cdef extern from *:
    """
    typedef struct {
        unsigned char *p;
        Py_ssize_t n;
        Py_ssize_t cap;
        Py_ssize_t first; /* bytes that are asked for first: about as many as were needed last time */
    } hr_vec;

    #if defined(__GNUC__)
    #define HR_SMALL static inline __attribute__((always_inline))
    #define HR_RARE static __attribute__((noinline))
    #define hr_rarely(x) __builtin_expect(!!(x), 0)
    #else
    #define HR_SMALL static inline
    #define HR_RARE static
    #define hr_rarely(x) (x)
    #endif

    HR_RARE int hr_grow(hr_vec *v, Py_ssize_t more) {
        Py_ssize_t cap = v->cap * 2;
        unsigned char *p;
        if (cap < v->n + more) cap = v->n + more;
        if (cap < v->first) cap = v->first;
        if (cap < 256) cap = 256;
        p = (unsigned char *) realloc(v->p, (size_t) cap);
        if (p == NULL) {
            PyGILState_STATE held = PyGILState_Ensure();
            PyErr_NoMemory();
            PyGILState_Release(held);
            return -1;
        }
        v->p = p;
        v->cap = cap;
        return 0;
    }

    HR_SMALL int hr_room(hr_vec *v, Py_ssize_t more) {
        return hr_rarely(v->n + more > v->cap) ? hr_grow(v, more) : 0;
    }

    HR_SMALL int hr_put(hr_vec *v, const void *data, Py_ssize_t size) {
        if (hr_rarely(hr_room(v, size) < 0)) return -1;
        if (size) memcpy(v->p + v->n, data, (size_t) size);
        v->n += size;
        return 0;
    }

    HR_SMALL int hr_fill(hr_vec *v, int byte, Py_ssize_t size) {
        if (hr_rarely(hr_room(v, size) < 0)) return -1;
        if (size > 0) {
            memset(v->p + v->n, byte, (size_t) size);
            v->n += size;
        }
        return 0;
    }

    /* Empties a vector whose memory somebody else owns from now on. Without `first` every buffer would be copied as often
       as it doubles. One large batch does not make small ones large. */
    HR_SMALL void hr_leave(hr_vec *v) {
        Py_ssize_t needed = v->n + v->n / 16;
        v->first = needed > v->first / 2 ? needed : v->first / 2;
        v->p = NULL;
        v->n = v->cap = 0;
    }

    HR_SMALL int hr_bit(hr_vec *v, Py_ssize_t place, int value) {
        Py_ssize_t more = (place >> 3) + 1 - v->n;
        if (more > 0 && hr_fill(v, 0, more) < 0) return -1;
        v->p[place >> 3] |= (unsigned char) ((value != 0) << (place & 7));
        return 0;
    }
    """
    ctypedef struct Vec "hr_vec":
        uint8_t *p
        Py_ssize_t n

    int _room "hr_room"(Vec *v, Py_ssize_t more) except -1 nogil
    int _put "hr_put"(Vec *v, const void *data, Py_ssize_t size) except -1 nogil
    int _fill "hr_fill"(Vec *v, int byte, Py_ssize_t size) except -1 nogil
    void _leave "hr_leave"(Vec *v) noexcept nogil
    int _bit "hr_bit"(Vec *v, Py_ssize_t place, int value) except -1 nogil
