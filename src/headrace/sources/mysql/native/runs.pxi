# Where images stand in the log: SCN of the transaction, ord inside it.


def scns_and_ords(runs):
    """Return SCNs (64 bits) and ords (32 bits) of the images of runs, as buffers; see the twin."""
    cdef Vec scns, ords
    cdef Py_ssize_t total = 0, count, i
    cdef int64_t scn
    cdef int32_t first
    cdef int64_t *scn_at
    cdef int32_t *ord_at
    memset(&scns, 0, sizeof(Vec))
    memset(&ords, 0, sizeof(Vec))
    for run in runs:
        total += run.count
    try:
        _room(&scns, 8 * total)
        _room(&ords, 4 * total)
        for run in runs:
            scn, first, count = run.scn, run.ord, run.count
            scn_at, ord_at = <int64_t*> (scns.p + scns.n), <int32_t*> (ords.p + ords.n)
            for i in range(count):
                scn_at[i] = scn
            for i in range(count):
                ord_at[i] = first + <int32_t> i
            scns.n += 8 * count
            ords.n += 4 * count
        return _hand_over(&scns), _hand_over(&ords)
    except BaseException:
        free(scns.p)
        free(ords.p)
        raise
