# Vectors as one record batch, through Arrow's C data interface: one call for all columns, where an array for each of
# them takes most of a small batch's time. Source: Arrow, "The Arrow C data interface".


cdef extern from *:
    """
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    struct ArrowArray {
        int64_t length;
        int64_t null_count;
        int64_t offset;
        int64_t n_buffers;
        int64_t n_children;
        const void **buffers;
        struct ArrowArray **children;
        struct ArrowArray *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    #endif

    #define HR_BUFFERS 3

    /* A column owns its buffers and the list of them. */
    static void hr_release_column(struct ArrowArray *column) {
        int64_t i;
        for (i = 0; i < column->n_buffers; i++) free((void *) column->buffers[i]);
        free(column->buffers);
        column->release = NULL;
    }

    /* The batch owns the list of its columns and what describes them, and those columns that nobody has taken. */
    static void hr_release_batch(struct ArrowArray *batch) {
        int64_t i;
        for (i = 0; i < batch->n_children; i++)
            if (batch->children[i]->release != NULL) batch->children[i]->release(batch->children[i]);
        free(batch->private_data);
        batch->release = NULL;
    }

    static int hr_begin_batch(struct ArrowArray *batch, int64_t columns) {
        static const void *no_buffers[1] = {NULL};
        int64_t i;
        size_t size = (size_t) columns * (sizeof(struct ArrowArray *) + sizeof(struct ArrowArray));
        struct ArrowArray **children = (struct ArrowArray **) calloc(1, size + 1);
        struct ArrowArray *first;
        memset(batch, 0, sizeof(*batch));
        if (children == NULL) return -1;
        first = (struct ArrowArray *) (children + columns);
        for (i = 0; i < columns; i++) children[i] = first + i;
        batch->n_buffers = 1;
        batch->buffers = no_buffers;
        batch->n_children = columns;
        batch->children = children;
        batch->private_data = children;
        batch->release = hr_release_batch;
        return 0;
    }

    static int hr_begin_column(struct ArrowArray *batch, int64_t place, int64_t rows, int64_t nulls) {
        struct ArrowArray *column = batch->children[place];
        column->buffers = (const void **) calloc(HR_BUFFERS, sizeof(void *));
        if (column->buffers == NULL) return -1;
        batch->length = column->length = rows;
        column->null_count = nulls;
        column->n_buffers = 1;
        column->release = hr_release_column;
        return 0;
    }

    /* Takes the vector's memory over; it is empty afterwards. */
    static void hr_end_buffer(struct ArrowArray *column, hr_vec *v) {
        column->buffers[column->n_buffers++] = v->p;
        hr_leave(v);
    }

    static void hr_end_validity(struct ArrowArray *column, hr_vec *v) {
        column->buffers[0] = v->p;
        hr_leave(v);
    }
    """
    struct ArrowArray:
        ArrowArray **children
        void (*release)(ArrowArray *) noexcept

    int hr_begin_batch(ArrowArray *batch, int64_t columns) nogil
    int hr_begin_column(ArrowArray *batch, int64_t place, int64_t rows, int64_t nulls) nogil
    void hr_end_buffer(ArrowArray *column, Vec *v) nogil
    void hr_end_validity(ArrowArray *column, Vec *v) nogil


cdef int _begin_batch(ArrowArray *batch, Py_ssize_t columns) except -1:
    if hr_begin_batch(batch, columns) < 0:
        raise MemoryError
    return 0


cdef int _add_column(
    ArrowArray *batch, Py_ssize_t place, Py_ssize_t rows, Py_ssize_t nulls,
    Vec *valid, Vec *offsets, Vec *data,
) except -1:
    """Hand one column over; its vectors are empty afterwards.

    Args:
        batch: begun.
        place: of the column.
        rows: in it.
        nulls: among them.
        valid: which are none; left alone where there are no nulls.
        offsets: of texts and bytes, NULL for values of one width.
        data: of the values.
    """
    # Arrow wants memory also where nothing lies in it.
    _room(data, 8)
    if nulls:
        _room(valid, 8)
    if offsets != NULL:
        _room(offsets, 8)
    if hr_begin_column(batch, place, rows, nulls) < 0:
        raise MemoryError
    if nulls:
        hr_end_validity(batch.children[place], valid)
    if offsets != NULL:
        hr_end_buffer(batch.children[place], offsets)
    hr_end_buffer(batch.children[place], data)
    return 0


cdef object _batch(ArrowArray *batch, object schema):
    """Return the record batch, which owns everything that was handed over."""
    return pa.RecordBatch._import_from_c(<size_t> batch, schema)


cdef void _give_up_batch(ArrowArray *batch) noexcept:
    """Let go of what was handed over, where no batch comes of it."""
    if batch.release != NULL:
        batch.release(batch)
