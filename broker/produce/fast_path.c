/* The Produce fast path, compiled: what `compiled_fast_path.py` puts in the place of Python methods.

Owns: the common case of five methods of Connection, PlainRequests and ProduceFastPath, on the same Python
objects. Invariants: a function here does what the Python method of its name does, or calls that method before
anything has changed; so the Python stays the specification, and the whole of what is possible. It decides
nothing of its own: a request that is not surely plain is given to the Python method.

Memory: `Bytes` and `Writer` are the only readers and writers of raw memory, and check each access; `slot` is
the only place that knows where an attribute lies in an object. A `Scope` owns each reference that a function
takes; it is released once, at the function's end. Errors: `Scope.failed` says that an exception is set. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

#ifndef SOURCE_DIGEST
#define SOURCE_DIGEST ""
#endif

/* --- raw memory ------------------------------------------------------------------------------------------ */

typedef struct {
    const uint8_t *start;
    Py_ssize_t size;
} Bytes;

static inline bool holds(Bytes data, Py_ssize_t at, Py_ssize_t count) {
    return at >= 0 && count >= 0 && count <= data.size && at <= data.size - count;
}

static inline uint64_t from_big_endian(uint64_t bytes) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return __builtin_bswap64(bytes);
#else
    return bytes;
#endif
}

/* A big-endian number of so many bytes; 0, and false in `ok`, where there are none. */
static inline uint64_t number(Bytes data, Py_ssize_t at, int width, bool *ok) {
    uint64_t value = 0;
    if (!holds(data, at, width)) {
        *ok = false;
        return 0;
    }
    memcpy(&value, data.start + at, (size_t)width);
    return from_big_endian(value) >> (64 - 8 * width);
}

#define U8(at) ((int64_t)number(data, at, 1, ok))
#define I16(at) ((int64_t)(int16_t)number(data, at, 2, ok))
#define I32(at) ((int64_t)(int32_t)number(data, at, 4, ok))
#define U32(at) ((int64_t)(uint32_t)number(data, at, 4, ok))
#define I64(at) ((int64_t)number(data, at, 8, ok))

static inline Bytes part(Bytes data, Py_ssize_t at, Py_ssize_t count) {
    return holds(data, at, count) ? (Bytes){data.start + at, count} : (Bytes){NULL, 0};
}

static inline bool is_same(Bytes one, Bytes other) {
    return one.size == other.size && (one.size == 0 || memcmp(one.start, other.start, (size_t)one.size) == 0);
}

typedef struct {
    uint8_t *start;
    Py_ssize_t size, at;
} Writer;

static inline void put(Writer *out, int64_t value, int width) {
    if (width > out->size - out->at) Py_FatalError("fast_path.c: a number beyond its buffer");
    uint64_t bytes = from_big_endian((uint64_t)value << (64 - 8 * width));
    memcpy(out->start + out->at, &bytes, (size_t)width);
    out->at += width;
}

static inline void put_bytes(Writer *out, PyObject *bytes) {
    Py_ssize_t size = PyBytes_GET_SIZE(bytes);
    if (size > out->size - out->at) Py_FatalError("fast_path.c: bytes beyond their buffer");
    memcpy(out->start + out->at, PyBytes_AS_STRING(bytes), (size_t)size);
    out->at += size;
}

/* --- Python objects -------------------------------------------------------------------------------------- */

/* Classes, and their attributes that are read or set here. NONE's are of classes without slots, or of several. */
#define CLASSES(X) \
    X(Connection) X(FrameReader) X(PlainRequests) X(RequestPrefix) X(ProduceFastPath) X(PlainTopic) \
    X(PlainPartition) X(PlainResponse) X(PartitionLog) X(PlainAppends) X(ServedLeadership) X(OpenFrame) \
    X(Applier) X(OpenWaiters) X(Producer)

#define ATTRIBUTES(X) \
    X(Connection, _active) X(Connection, _blocking_reply) X(Connection, _closing) X(Connection, _fast_requests) \
    X(Connection, _fetching) X(Connection, _frame_bytes) X(Connection, _output) X(Connection, _output_bytes) \
    X(Connection, _pending_reply_bytes) X(Connection, _queued_frames) X(Connection, _reader) \
    X(Connection, _replies) X(Connection, _shared) X(Connection, _slice_seconds) X(Connection, _slice_since) \
    X(Connection, _transport) X(Connection, _unsent_bytes) X(Connection, _writable) \
    X(FrameReader, _buffer) X(FrameReader, _end) X(FrameReader, _large_bytes) X(FrameReader, _small_reads) \
    X(FrameReader, _start) X(FrameReader, is_full) X(FrameReader, max_frame_bytes) \
    X(PlainRequests, _known) X(PlainRequests, _path) X(PlainRequests, _to_skip) X(PlainRequests, connection) \
    X(RequestPrefix, bytes) X(RequestPrefix, changes) X(RequestPrefix, end) X(RequestPrefix, is_flexible) \
    X(RequestPrefix, key_and_version) X(RequestPrefix, topic) \
    X(ProduceFastPath, cluster) X(ProduceFastPath, route) \
    X(PlainTopic, _partitions) X(PlainTopic, after_max_ms) X(PlainTopic, max_codec) \
    X(PlainTopic, max_message_bytes) \
    X(PlainPartition, _after) X(PlainPartition, _before) X(PlainPartition, _between) \
    X(PlainPartition, _has_log_start) X(PlainPartition, _length) X(PlainPartition, appender) \
    X(PlainPartition, group) X(PlainPartition, log) \
    X(PlainResponse, appended) X(PlainResponse, buffers) X(PlainResponse, correlation_id) \
    X(PlainResponse, reply_bytes) X(PlainResponse, request_bytes) X(PlainResponse, requests) \
    X(PartitionLog, epoch_base) X(PartitionLog, leader_epochs) X(PartitionLog, local_id) \
    X(PartitionLog, log_start_offset) X(PartitionLog, next_offset) \
    X(PlainAppends, _applier) X(PlainAppends, _leadership) X(PlainAppends, _log) \
    X(PlainAppends, _max_uncommitted_bytes) X(PlainAppends, _open) X(PlainAppends, _raft) \
    X(ServedLeadership, is_serving) \
    X(OpenFrame, _entries) X(OpenFrame, _frame_bytes) X(OpenFrame, _max_frame_bytes) \
    X(OpenFrame, _open_records) X(OpenFrame, _payloads) X(OpenFrame, pending_bytes) X(OpenFrame, time_ms) \
    X(Applier, in_flight_bytes) X(OpenWaiters, _shared) \
    X(Producer, batches) X(Producer, last_sequence) X(Producer, last_time_ms) X(Producer, open_at) \
    X(Producer, producer_epoch) \
    X(NONE, _abort) X(NONE, _complete) X(NONE, _continue_slice) X(NONE, _dispatch_all) X(NONE, _fail) X(NONE, _partitions) X(NONE, _send_ready) \
    X(NONE, _propose_scheduled) X(NONE, _unsent) X(NONE, _waiting_for_memory) X(NONE, append) \
    X(NONE, changes) X(NONE, clock) X(NONE, clock_ms) X(NONE, in_flight_bytes) X(NONE, locks) X(NONE, max_in_flight) \
    X(NONE, max_in_flight_bytes) X(NONE, on_commit) X(NONE, on_reply) X(NONE, open_waiters) \
    X(NONE, partitions) X(NONE, plain) X(NONE, producers) X(NONE, request_count) X(NONE, resume) \
    X(NONE, has_space_for) X(NONE, schedule_propose) X(NONE, send_later) X(NONE, share) X(NONE, table) \
    X(NONE, term) X(NONE, unfinished_frames) X(NONE, waiting) X(NONE, write) X(NONE, write_buffer_bytes)

/* What Python gives `bind` besides: constants, and functions that are called or recognised. */
#define CONSTANTS(X) \
    X(BATCH_HEADER_BYTES) X(CORRELATION_END) X(CRC_START) X(CURRENT_MAGIC) X(ENTRY_BYTES) X(JOIN_BELOW_BYTES) \
    X(LENGTH_BYTES) X(LENGTH_PREFIX_BYTES) X(MAX_BYTE_LENGTH) X(MAX_FRAME_RECORDS) X(MAX_REQUEST_BYTES) \
    X(MIN_BUFFER_BYTES) X(MIN_RECORD_BYTES) X(READS_BEFORE_SHRINK) X(SEQUENCE_MASK)

#define AS_CLASS(name) CLASS_##name,
enum { CLASSES(AS_CLASS) CLASS_NONE };
#define AS_ATTRIBUTE(owner, name) owner##_##name,
enum { ATTRIBUTES(AS_ATTRIBUTE) ATTRIBUTE_COUNT };
#define AS_CONSTANT(name) static Py_ssize_t name;
CONSTANTS(AS_CONSTANT)
static double time_slice_seconds;

static PyTypeObject *classes[CLASS_NONE];

typedef struct {
    int owner;
    const char *text;
    PyObject *name;
    Py_ssize_t offset;
} Attribute;

#define AS_ROW(owner, name) {CLASS_##owner, #name, NULL, 0},
static Attribute attributes[] = {ATTRIBUTES(AS_ROW)};

static PyTypeObject *compiled_requests;
static PyObject *crc32c, *wall_clock_ms, *empty_bytes;
/* The Python methods in whose place the functions below are. */
static PyObject *python_buffer_updated, *python_get_buffer, *python_write_out, *python_append, *python_on_commit,
    *python_on_reply;

enum { HELD = 48 };

typedef struct {
    bool failed;
    int count;
    PyObject *held[HELD];
} Scope;

/* An empty scope; what it will hold need not be cleared. */
static inline Scope *begin(Scope *scope) {
    scope->failed = false;
    scope->count = 0;
    return scope;
}

static inline PyObject *hold(Scope *scope, PyObject *object) {
    if (object == NULL)
        scope->failed = true;
    else if (scope->count == HELD)
        Py_FatalError("fast_path.c: a scope is full");
    else
        scope->held[scope->count++] = object;
    return object;
}

static inline void release(Scope *scope) {
    while (scope->count) Py_DECREF(scope->held[--scope->count]);
}

/* Where the object has an attribute in a slot; NULL where its class is another one, whose attributes are looked
   up by name. Slots of a class are at the same place in its subclasses. */
static inline PyObject **slot(PyObject *object, int which) {
    const Attribute *attribute = &attributes[which];
    if (attribute->offset == 0) return NULL;
    PyTypeObject *owner = classes[attribute->owner];
    if (Py_TYPE(object) != owner && !PyType_IsSubtype(Py_TYPE(object), owner)) return NULL;
    return (PyObject **)((char *)object + attribute->offset);
}

/* An attribute, owned by the scope; NULL, and `failed`, where there is none. */
static inline PyObject *get(Scope *scope, PyObject *object, int which) {
    if (scope->failed) return NULL;
    PyObject **place = slot(object, which);
    if (place != NULL && *place != NULL) return hold(scope, Py_NewRef(*place));
    return hold(scope, PyObject_GetAttr(object, attributes[which].name));
}

static inline int64_t as_int64(Scope *scope, PyObject *number) {
    if (scope->failed) return 0;
    int64_t value = PyLong_AsLongLong(number);
    if (value == -1 && PyErr_Occurred()) scope->failed = true;
    return value;
}

static inline int64_t get_int(Scope *scope, PyObject *object, int which) {
    if (scope->failed) return 0;
    PyObject **place = slot(object, which);
    if (place != NULL && *place != NULL) return as_int64(scope, *place);
    PyObject *found = PyObject_GetAttr(object, attributes[which].name);
    scope->failed = found == NULL;
    int64_t value = as_int64(scope, found);
    Py_XDECREF(found);
    return value;
}

static inline bool is_true(Scope *scope, PyObject *object) {
    if (scope->failed) return false;
    int result = object == Py_True ? 1 : object == Py_False || object == Py_None ? 0 : PyObject_IsTrue(object);
    if (result < 0) scope->failed = true;
    return result > 0;
}

static inline bool get_bool(Scope *scope, PyObject *object, int which) {
    if (scope->failed) return false;
    PyObject **place = slot(object, which);
    if (place != NULL && *place != NULL) return is_true(scope, *place);
    PyObject *found = PyObject_GetAttr(object, attributes[which].name);
    scope->failed = found == NULL;
    bool value = is_true(scope, found);
    Py_XDECREF(found);
    return value;
}

static inline bool is_none(Scope *scope, PyObject *object, int which) {
    return get(scope, object, which) == Py_None;
}

/* Sets an attribute to a new reference, which is taken. */
static inline void set(Scope *scope, PyObject *object, int which, PyObject *value) {
    if (scope->failed || value == NULL) {
        scope->failed = true;
        Py_XDECREF(value);
        return;
    }
    PyObject **place = slot(object, which);
    if (place != NULL) {
        PyObject *former = *place;
        *place = value;
        Py_XDECREF(former);
        return;
    }
    if (PyObject_SetAttr(object, attributes[which].name, value) < 0) scope->failed = true;
    Py_DECREF(value);
}

static inline void set_int(Scope *scope, PyObject *object, int which, int64_t value) {
    if (!scope->failed) set(scope, object, which, PyLong_FromLongLong(value));
}

static inline void set_true(Scope *scope, PyObject *object, int which) {
    set(scope, object, which, Py_NewRef(Py_True));
}

/* Appends a new reference, which is taken, to a list. */
static inline void push(Scope *scope, PyObject *list, PyObject *value) {
    if (!scope->failed && (value == NULL || PyList_Append(list, value) < 0)) scope->failed = true;
    if (value == NULL) scope->failed = true;
    Py_XDECREF(value);
}

/* The result of a method, owned by the scope. */
static inline PyObject *call(Scope *scope, PyObject *object, int method, PyObject *argument) {
    if (scope->failed) return NULL;
    PyObject *name = attributes[method].name;
    return hold(scope, argument == NULL ? PyObject_CallMethodNoArgs(object, name)
                                        : PyObject_CallMethodOneArg(object, name, argument));
}

static inline double call_clock(Scope *scope, PyObject *clock) {
    PyObject *now = scope->failed ? NULL : PyObject_CallNoArgs(clock);
    double seconds = now == NULL ? -1.0 : PyFloat_AsDouble(now);
    if (now == NULL || (seconds == -1.0 && PyErr_Occurred())) scope->failed = true;
    Py_XDECREF(now);
    return seconds;
}

/* --- a request ------------------------------------------------------------------------------------------- */

enum { MAX_BATCHES = 126 };

/* A plain batch of a request. Partition and producer are owned by the reader's scope. */
typedef struct {
    PyObject *partition, *producer, *index;
    Py_ssize_t at, size;
    int64_t count, crc, max_timestamp, sequence, last_sequence;
} Batch;

typedef struct {
    int count;
    Batch of[MAX_BATCHES];
} Batches;

static void release_batches(Batches *batches) {
    for (int index = 0; index < batches->count; index++) {
        Py_DECREF(batches->of[index].partition);
        Py_DECREF(batches->of[index].index);
        Py_XDECREF(batches->of[index].producer);
    }
}

static int64_t now_ms(Scope *scope, PyObject *clock_ms) {
    struct timespec now;
    if (scope->failed) return 0;
    if (clock_ms == wall_clock_ms && clock_gettime(CLOCK_REALTIME, &now) == 0)
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    return as_int64(scope, hold(scope, PyObject_CallNoArgs(clock_ms)));
}

static bool has_crc(Scope *scope, Bytes covered, int64_t crc) {
    PyObject *view = hold(scope, PyMemoryView_FromMemory((char *)covered.start, covered.size, PyBUF_READ));
    PyObject *found = view == NULL ? NULL : hold(scope, PyObject_CallOneArg(crc32c, view));
    return found != NULL && as_int64(scope, found) == crc;
}

/* `ProducerState.producer_continued_by`; NULL where Python must look. */
static PyObject *continued_by(Scope *scope, PyObject *appender, PyObject *local_id, int64_t producer_id,
                              int64_t epoch, int64_t sequence) {
    PyObject *states = get(scope, get(scope, appender, NONE_producers), NONE__partitions);
    if (scope->failed || !PyDict_CheckExact(states)) return NULL;
    PyObject *producers = PyDict_GetItemWithError(states, local_id);
    if (producers == NULL || !PyDict_CheckExact(producers)) return NULL;
    PyObject *key = hold(scope, PyLong_FromLongLong(producer_id));
    PyObject *producer = key == NULL ? NULL : PyDict_GetItemWithError(producers, key);
    if (producer == NULL || Py_TYPE(producer) != classes[CLASS_Producer]) return NULL;
    hold(scope, Py_NewRef(producer));
    bool continues = epoch >= 0 && get_int(scope, producer, Producer_producer_epoch) == epoch &&
                     get_int(scope, producer, Producer_open_at) < 0 &&
                     ((get_int(scope, producer, Producer_last_sequence) + 1) & SEQUENCE_MASK) == sequence;
    return continues && !scope->failed ? producer : NULL;
}

/* `_plain_batch`: adds the batch at `at`; false where it is not surely plain. */
static bool read_batch(Scope *outer, PyObject *topic, int64_t index, Bytes data, Py_ssize_t at, int64_t size,
                       Batches *batches) {
    bool good = true, *ok = &good;
    if (size < BATCH_HEADER_BYTES || !holds(data, at, size) || batches->count == MAX_BATCHES) return false;
    int64_t base_offset = I64(at), length = I32(at + 8), magic = U8(at + 16), crc = U32(at + 17);
    int64_t attributes_bits = I16(at + 21), last_delta = I32(at + 23), base_timestamp = I64(at + 27);
    int64_t max_timestamp = I64(at + 35), producer_id = I64(at + 43), epoch = I16(at + 51);
    int64_t sequence = I32(at + 53), count = I32(at + 57), ahead;
    if (!good || length + LENGTH_PREFIX_BYTES != size || magic != CURRENT_MAGIC || base_offset != 0 ||
        attributes_bits < 0 || last_delta + 1 != count || count < 1 ||
        (attributes_bits == 0 && count * MIN_RECORD_BYTES > size - BATCH_HEADER_BYTES) ||
        max_timestamp < base_timestamp || max_timestamp < -1)
        return false;
    Scope inner, *scope = begin(&inner);
    Batch batch = {NULL, NULL, NULL, at, size, count, crc, max_timestamp, sequence, 0};
    batch.last_sequence = (sequence + last_delta) & SEQUENCE_MASK;
    bool is_plain = false;
    PyObject *partitions = get(scope, topic, PlainTopic__partitions);
    batch.index = hold(scope, PyLong_FromLongLong(index));
    if (scope->failed || !PyDict_CheckExact(partitions)) goto done;
    batch.partition = PyDict_GetItemWithError(partitions, batch.index);
    if (batch.partition == NULL) goto done;
    hold(scope, Py_NewRef(batch.partition));
    PyObject *appender = get(scope, batch.partition, PlainPartition_appender);
    PyObject *local_id = get(scope, get(scope, batch.partition, PlainPartition_log), PartitionLog_local_id);
    PyObject *locks = get(scope, appender, NONE_locks);
    if (scope->failed || attributes_bits > get_int(scope, topic, PlainTopic_max_codec) ||
        size > get_int(scope, topic, PlainTopic_max_message_bytes) ||
        __builtin_sub_overflow(max_timestamp, now_ms(scope, get(scope, appender, NONE_clock_ms)), &ahead) ||
        ahead > get_int(scope, topic, PlainTopic_after_max_ms) || scope->failed)
        goto done;
    if (locks != Py_None) {
        PyObject *locked = get(scope, get(scope, locks, NONE_table), NONE_partitions);
        if (scope->failed || PySequence_Contains(locked, local_id) != 0) goto done;
    }
    if (producer_id >= 0) {
        batch.producer = continued_by(scope, appender, local_id, producer_id, epoch, sequence);
        if (batch.producer == NULL) goto done;
    }
    is_plain = has_crc(scope, part(data, at + CRC_START, size - CRC_START), crc);
done:
    outer->failed |= scope->failed || PyErr_Occurred() != NULL;
    if (is_plain && !outer->failed) {
        Py_INCREF(batch.partition);
        Py_INCREF(batch.index);
        Py_XINCREF(batch.producer);
        batches->of[batches->count++] = batch;
    }
    release(scope);
    return is_plain && !outer->failed;
}

/* `_read`: the batches of a request whose first bytes are known; false where one is not surely plain. */
static bool read_batches(Scope *scope, PyObject *known, Bytes data, Batches *batches) {
    bool good = true, *ok = &good;
    Py_ssize_t at = get_int(scope, known, RequestPrefix_end);
    PyObject *topic = get(scope, known, RequestPrefix_topic);
    bool is_flexible = get_bool(scope, known, RequestPrefix_is_flexible);
    if (scope->failed || data.size > MAX_REQUEST_BYTES) return false;
    int64_t count = is_flexible ? U8(at) - 1 : I32(at);
    at += is_flexible ? 1 : 4;
    if (!good || count < 1 || count >= MAX_BYTE_LENGTH) return false;
    for (int64_t each = 0; each < count; each++) {
        int64_t index = I32(at), size = is_flexible ? U8(at + 4) : I32(at + 4);
        at += is_flexible ? 5 : 8;
        if (is_flexible && size > MAX_BYTE_LENGTH) {
            int64_t more = U8(at++);
            size += (more - 1) * (1 << 7);
            if (more > MAX_BYTE_LENGTH) size += (U8(at++) - 1) * (1 << 14);
        }
        size -= is_flexible;
        if (!good || !read_batch(scope, topic, index, data, at, size, batches)) return false;
        at += size;
        if (is_flexible && U8(at++) != 0) return false;
    }
    if (is_flexible) {
        if (number(data, at, 2, ok) != 0) return false;
        at += 2;
    }
    return good && at == data.size;
}

/* `PlainAppends.has_room` and `_fit_in_open_frame`: true if the batches fit into the open frame together. */
static bool have_room(Scope *scope, PyObject *group, PyObject *plain, PyObject *open, const Batches *batches) {
    int64_t size = 0, records = 0;
    for (int index = 0; index < batches->count; index++) {
        const Batch *batch = &batches->of[index];
        size += batch->size;
        records += batch->count;
        if (index == 0) continue;
        if (get(scope, batch->partition, PlainPartition_group) != group) return false;
        for (int other = 0; other < index; other++)
            if (batches->of[other].partition == batch->partition) return false;
        Py_DECREF(scope->held[--scope->count]); /* the group: a scope holds few */
    }
    int64_t pending = get_int(scope, open, OpenFrame_pending_bytes) + size;
    if (!get_bool(scope, get(scope, plain, PlainAppends__leadership), ServedLeadership_is_serving) ||
        get_int(scope, open, OpenFrame__frame_bytes) + ENTRY_BYTES * batches->count + size >
            get_int(scope, open, OpenFrame__max_frame_bytes) ||
        get_int(scope, open, OpenFrame__open_records) + records > MAX_FRAME_RECORDS || scope->failed)
        return false;
    PyObject *room = hold(scope, PyLong_FromLongLong(pending));
    return is_true(scope, call(scope, get(scope, plain, PlainAppends__log), NONE_has_space_for, room)) &&
           pending + get_int(scope, get(scope, plain, PlainAppends__applier), Applier_in_flight_bytes) <=
               get_int(scope, plain, PlainAppends__max_uncommitted_bytes) &&
           !scope->failed;
}

/* `OpenFrame.add_batch` where the frame has a batch already and the partition this epoch; else -1. */
static int64_t add_batch(Scope *scope, PyObject *open, PyObject *log, PyObject *payload, const Batch *batch,
                         int64_t leader_epoch) {
    PyObject *entries = get(scope, open, OpenFrame__entries), *epochs = get(scope, log, PartitionLog_leader_epochs);
    if (scope->failed || !PyList_CheckExact(entries) || !PyList_CheckExact(epochs) ||
        PyList_GET_SIZE(entries) == 0 || PyList_GET_SIZE(epochs) == 0)
        return -1;
    PyObject *newest = PyList_GET_ITEM(epochs, PyList_GET_SIZE(epochs) - 1);
    if (!PyTuple_CheckExact(newest) || PyTuple_GET_SIZE(newest) != 2 ||
        as_int64(scope, PyTuple_GET_ITEM(newest, 0)) != leader_epoch || scope->failed)
        return -1;
    PyObject *payloads = get(scope, open, OpenFrame__payloads);
    PyObject *base = get(scope, log, PartitionLog_next_offset);
    int64_t base_offset = as_int64(scope, base);
    if (scope->failed || !PyList_CheckExact(payloads)) return -1;
    PyObject *entry = PyTuple_New(8);
    if (entry == NULL) {
        scope->failed = true;
        return -1;
    }
    PyTuple_SET_ITEM(entry, 0, Py_XNewRef(get(scope, log, PartitionLog_local_id)));
    PyTuple_SET_ITEM(entry, 1, Py_NewRef(base));
    PyTuple_SET_ITEM(entry, 2, PyLong_FromLongLong(batch->count));
    PyTuple_SET_ITEM(entry, 3, PyLong_FromSsize_t(batch->size));
    PyTuple_SET_ITEM(entry, 4, PyLong_FromLongLong(batch->crc));
    PyTuple_SET_ITEM(entry, 5, PyLong_FromLongLong(leader_epoch));
    PyTuple_SET_ITEM(entry, 6, PyLong_FromLongLong(batch->max_timestamp));
    PyTuple_SET_ITEM(entry, 7, PyLong_FromLong(0));
    for (int index = 0; index < 8; index++)
        if (PyTuple_GET_ITEM(entry, index) == NULL) scope->failed = true;
    Writer out = {(uint8_t *)PyByteArray_AS_STRING(payload), PyByteArray_GET_SIZE(payload), 0};
    put(&out, base_offset, 8);
    put(&out, batch->size - LENGTH_PREFIX_BYTES, 4);
    put(&out, leader_epoch, 4);
    push(scope, entries, entry);
    push(scope, payloads, Py_NewRef(payload));
    set_int(scope, open, OpenFrame__frame_bytes,
            get_int(scope, open, OpenFrame__frame_bytes) + ENTRY_BYTES + batch->size);
    set_int(scope, open, OpenFrame_pending_bytes, get_int(scope, open, OpenFrame_pending_bytes) + batch->size);
    set_int(scope, open, OpenFrame__open_records, get_int(scope, open, OpenFrame__open_records) + batch->count);
    set_int(scope, log, PartitionLog_next_offset, base_offset + batch->count);
    return base_offset;
}

/* `Producer.append`. */
static void record_sequence(Scope *scope, const Batch *batch, int64_t base_offset, PyObject *open) {
    set(scope, batch->producer, Producer_last_time_ms, Py_XNewRef(get(scope, open, OpenFrame_time_ms)));
    set_int(scope, batch->producer, Producer_last_sequence, batch->last_sequence);
    PyObject *row = hold(scope, Py_BuildValue("(LLL)", (long long)batch->sequence, (long long)batch->last_sequence,
                                              (long long)base_offset));
    call(scope, get(scope, batch->producer, Producer_batches), NONE_append, row);
}

/* Appends a batch for which there is room, and adds its row to `appended`. */
static void append_batch(Scope *outer, PyObject *group, PyObject *plain, PyObject *open, int64_t term, Bytes data,
                         const Batch *batch, PyObject *appended) {
    Scope inner, *scope = begin(&inner);
    PyObject *log = get(scope, batch->partition, PlainPartition_log);
    PyObject *log_start = scope->failed ? NULL : get(scope, log, PartitionLog_log_start_offset);
    Bytes bytes = part(data, batch->at, batch->size);
    PyObject *payload = hold(scope, PyByteArray_FromStringAndSize((const char *)bytes.start, bytes.size));
    PyObject *base = NULL;
    int64_t base_offset = -1;
    if (!scope->failed && get_bool(scope, group, NONE__propose_scheduled))
        base_offset = add_batch(scope, open, log, payload, batch,
                                term + get_int(scope, log, PartitionLog_epoch_base));
    if (!scope->failed && base_offset < 0) {
        base = hold(scope, PyObject_CallMethod(plain, "append", "OOLLL", log, payload, (long long)batch->count,
                                               (long long)batch->crc, (long long)batch->max_timestamp));
        base_offset = as_int64(scope, base);
    }
    if (!scope->failed && batch->producer != NULL) record_sequence(scope, batch, base_offset, open);
    if (!scope->failed)
        push(scope, appended,
             PyTuple_Pack(3, batch->partition, base != NULL ? base : hold(scope, PyLong_FromLongLong(base_offset)), log_start));
    outer->failed |= scope->failed;
    release(scope);
}

/* The reply of a plain request: an object of PlainResponse, made without its constructor. */
static PyObject *new_response(Scope *scope, PyObject *requests, int64_t correlation_id, Py_ssize_t size,
                              PyObject *appended) {
    PyTypeObject *type = classes[CLASS_PlainResponse];
    PyObject *reply = scope->failed ? NULL : type->tp_alloc(type, 0);
    if (reply == NULL) {
        scope->failed = true;
        return NULL;
    }
    set(scope, reply, PlainResponse_requests, Py_NewRef(requests));
    set_int(scope, reply, PlainResponse_correlation_id, correlation_id);
    set_int(scope, reply, PlainResponse_request_bytes, size);
    set(scope, reply, PlainResponse_appended, Py_NewRef(appended));
    set(scope, reply, PlainResponse_buffers, Py_NewRef(Py_None));
    set_int(scope, reply, PlainResponse_reply_bytes, 0);
    return reply;
}

/* `group.open_waiters.share(path.on_commit, reply)`. */
static void share_waiter(Scope *scope, PyObject *path, PyObject *group, PyObject *reply) {
    PyObject *waiters = get(scope, group, NONE_open_waiters);
    PyObject *shared = scope->failed ? NULL : get(scope, waiters, OpenWaiters__shared);
    if (scope->failed) return;
    if (PyList_CheckExact(shared)) {
        push(scope, shared, Py_NewRef(reply));
        return;
    }
    PyObject *on_commit = get(scope, path, NONE_on_commit);
    if (!scope->failed)
        hold(scope, PyObject_CallMethodObjArgs(waiters, attributes[NONE_share].name, on_commit, reply, NULL));
}

/* Appends a request that is surely plain: its reply. None: nothing has changed, and Python must look. NULL with
   an exception: as where the Python method raises. */
static PyObject *append_plain(PyObject *requests, Bytes data) {
    bool good = true, *ok = &good;
    Scope outer, *scope = begin(&outer);
    PyObject *reply = NULL, *known = get(scope, requests, PlainRequests__known);
    Batches batches;
    batches.count = 0;
    if (scope->failed || known == Py_None || get_int(scope, requests, PlainRequests__to_skip) != 0) goto done;
    PyObject *path = get(scope, requests, PlainRequests__path), *prefix = get(scope, known, RequestPrefix_bytes);
    int64_t changes = scope->failed ? 0 : get_int(scope, get(scope, path, ProduceFastPath_cluster), NONE_changes);
    int64_t key_and_version = I32(0), correlation_id = I32(4);
    if (scope->failed || !good || !PyBytes_CheckExact(prefix) ||
        get_int(scope, known, RequestPrefix_changes) != changes ||
        get_int(scope, known, RequestPrefix_key_and_version) != key_and_version)
        goto done;
    Bytes expected = {(const uint8_t *)PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix)};
    if (!is_same(part(data, CORRELATION_END, expected.size), expected) ||
        !read_batches(scope, known, data, &batches))
        goto done;
    PyObject *group = get(scope, batches.of[0].partition, PlainPartition_group);
    PyObject *plain = scope->failed ? NULL : get(scope, group, NONE_plain);
    PyObject *open = scope->failed ? NULL : get(scope, plain, PlainAppends__open);
    if (scope->failed || !have_room(scope, group, plain, open, &batches)) goto done;
    int64_t term = get_int(scope, get(scope, plain, PlainAppends__raft), NONE_term);
    PyObject *appended = hold(scope, PyList_New(0));
    for (int index = 0; index < batches.count && !scope->failed; index++)
        append_batch(scope, group, plain, open, term, data, &batches.of[index], appended);
    PyObject *route = scope->failed ? NULL : get(scope, path, ProduceFastPath_route);
    if (scope->failed) goto done;
    set_int(scope, route, NONE_request_count, get_int(scope, route, NONE_request_count) + 1);
    reply = new_response(scope, requests, correlation_id, data.size, appended);
    if (!scope->failed) share_waiter(scope, path, group, reply);
done:
    release_batches(&batches);
    release(scope);
    if (scope->failed || PyErr_Occurred()) {
        Py_CLEAR(reply);
        return NULL;
    }
    return reply != NULL ? reply : Py_NewRef(Py_None);
}

/* PlainRequests.append(frame) */
static PyObject *requests_append(PyObject *requests, PyObject *frame) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(frame, &buffer, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *reply = append_plain(requests, (Bytes){buffer.buf, buffer.len});
    PyBuffer_Release(&buffer);
    if (reply != Py_None) return reply;
    Py_DECREF(reply);
    return PyObject_CallFunctionObjArgs(python_append, requests, frame, NULL);
}

/* --- a connection receives ------------------------------------------------------------------------------- */

/* Connection.get_buffer(sizehint) */
static PyObject *connection_get_buffer(PyObject *connection, PyObject *sizehint) {
    Scope outer, *scope = begin(&outer);
    PyObject *buffer = NULL, *reader = get(scope, connection, Connection__reader);
    if (!scope->failed) {
        int64_t start = get_int(scope, reader, FrameReader__start), end = get_int(scope, reader, FrameReader__end);
        if (!scope->failed && start == end) {
            if (start != 0) {
                set_int(scope, reader, FrameReader__start, 0);
                set_int(scope, reader, FrameReader__end, 0);
            }
            buffer = Py_XNewRef(get(scope, reader, FrameReader__buffer));
        } else if (!scope->failed)
            buffer = PyObject_CallFunctionObjArgs(python_get_buffer, connection, sizehint, NULL);
    }
    release(scope);
    return buffer;
}

/* `FrameReader.commit` without its frames: where they begin and end, where nothing rare is to be done. */
static bool commit_received(Scope *scope, PyObject *reader, Bytes data, int64_t count, Py_ssize_t *first,
                            Py_ssize_t *last) {
    bool good = true, *ok = &good;
    int64_t start = get_int(scope, reader, FrameReader__start), limit = get_int(scope, reader, FrameReader_max_frame_bytes);
    int64_t end = get_int(scope, reader, FrameReader__end) + count, at = start;
    if (scope->failed || start < 0 || end >= data.size || count < 0) return false;
    while (end - at >= LENGTH_BYTES) {
        int64_t length = I32(at);
        if (!good || length < 0 || length > limit) return false;
        if (end - at < LENGTH_BYTES + length) break;
        at += LENGTH_BYTES + length;
    }
    int64_t small_reads = get_int(scope, reader, FrameReader__small_reads);
    bool is_small = count < data.size / 4 && data.size > MIN_BUFFER_BYTES;
    if (scope->failed || (is_small && small_reads + 1 >= READS_BEFORE_SHRINK)) return false;
    set_int(scope, reader, FrameReader__end, end);
    set_int(scope, reader, FrameReader__start, at);
    if (is_small)
        set_int(scope, reader, FrameReader__small_reads, small_reads + 1);
    else if (small_reads != 0 && count >= data.size / 4)
        set_int(scope, reader, FrameReader__small_reads, 0);
    *first = start;
    *last = at;
    return !scope->failed;
}

/* The limits of all connections, as they are during one read. */
typedef struct {
    PyObject *clock;
    int64_t write_buffer_bytes, max_in_flight, max_in_flight_bytes;
} Limits;

/* `not _must_wait`, where no output is to be written first. */
static bool may_dispatch(Scope *scope, PyObject *connection, PyObject *shared, const Limits *limits) {
    PyObject *replies = get(scope, connection, Connection__replies);
    return !scope->failed && get_int(scope, connection, Connection__output_bytes) <= limits->write_buffer_bytes &&
           get_bool(scope, connection, Connection__writable) &&
           get_int(scope, connection, Connection__pending_reply_bytes) <= limits->write_buffer_bytes &&
           is_none(scope, connection, Connection__blocking_reply) &&
           !get_bool(scope, connection, Connection__fetching) &&
           (replies == Py_None ||
            (PyList_CheckExact(replies) && PyList_GET_SIZE(replies) < limits->max_in_flight)) &&
           (limits->max_in_flight_bytes < 0 ||
            get_int(scope, shared, NONE_in_flight_bytes) <= limits->max_in_flight_bytes) &&
           !scope->failed;
}

/* `_enqueue`. */
static void enqueue(Scope *scope, PyObject *connection, PyObject *shared, PyObject *reply, Py_ssize_t size) {
    PyObject *replies = get(scope, connection, Connection__replies);
    if (scope->failed) return;
    if (PyList_CheckExact(replies))
        push(scope, replies, Py_NewRef(reply));
    else {
        PyObject *list = PyList_New(1);
        if (list != NULL) PyList_SET_ITEM(list, 0, Py_NewRef(reply));
        set(scope, connection, Connection__replies, list);
    }
    set_int(scope, shared, NONE_in_flight_bytes, get_int(scope, shared, NONE_in_flight_bytes) + size);
}

/* Counts the time since the last look, as `_is_out_of_time` does; false where the time slice is used up, without
   a change. */
static bool count_time(Scope *scope, PyObject *connection, const Limits *limits) {
    double now = call_clock(scope, limits->clock);
    PyObject *spent = get(scope, connection, Connection__slice_seconds);
    PyObject *since = scope->failed ? NULL : get(scope, connection, Connection__slice_since);
    if (scope->failed || !PyFloat_CheckExact(spent) || !PyFloat_CheckExact(since)) return false;
    double seconds = PyFloat_AS_DOUBLE(spent) + (now - PyFloat_AS_DOUBLE(since));
    if (seconds >= time_slice_seconds) return false;
    set(scope, connection, Connection__slice_seconds, PyFloat_FromDouble(seconds));
    set(scope, connection, Connection__slice_since, PyFloat_FromDouble(now));
    return !scope->failed;
}

/* Gives the error that is set to a method, with what it is told first where there is something. */
static void give_error(PyObject *object, int method, PyObject *first) {
    PyObject *type, *error, *traceback, *name = attributes[method].name;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL) PyException_SetTraceback(error, traceback);
    Py_XDECREF(first == NULL ? PyObject_CallMethodOneArg(object, name, error)
                             : PyObject_CallMethodObjArgs(object, name, first, error, NULL));
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
}

/* Gives the frames from `at` to `last` to a method of the connection. */
static void give_frames(Scope *scope, PyObject *connection, int method, PyObject *buffer, Bytes data, Py_ssize_t at,
                        Py_ssize_t last) {
    bool good = true, *ok = &good;
    PyObject *frames = hold(scope, PyList_New(0));
    while (!scope->failed && good && at < last) {
        Py_ssize_t next = at + LENGTH_BYTES + (Py_ssize_t)I32(at);
        push(scope, frames, PySequence_GetSlice(buffer, at + LENGTH_BYTES, next));
        at = next;
    }
    call(scope, connection, method, frames);
}

/* Appends the requests between `first` and `last` of the buffer as far as each is surely plain and may be
   dispatched; Python gets the others. */
static void dispatch(Scope *outer, PyObject *connection, PyObject *requests, PyObject *buffer, Bytes data,
                     Py_ssize_t first, Py_ssize_t last) {
    bool good = true, *ok = &good;
    PyObject *shared = get(outer, connection, Connection__shared);
    if (outer->failed) return;
    Limits limits = {get(outer, shared, NONE_clock), get_int(outer, shared, NONE_write_buffer_bytes),
                     get_int(outer, shared, NONE_max_in_flight), get_int(outer, shared, NONE_max_in_flight_bytes)};
    set(outer, connection, Connection__slice_since, PyFloat_FromDouble(call_clock(outer, limits.clock)));
    while (!outer->failed && first < last) {
        Scope inner, *scope = begin(&inner);
        Py_ssize_t size = (Py_ssize_t)I32(first), next = first + LENGTH_BYTES + size;
        PyObject *reply = Py_None;
        int left_to = NONE__dispatch_all;
        if (may_dispatch(scope, connection, shared, &limits))
            reply = append_plain(requests, part(data, first + LENGTH_BYTES, size));
        bool goes_on = false, has_raised = reply == NULL;
        if (reply == Py_None)
            left_to = NONE__dispatch_all;
        else if (!has_raised) {
            hold(scope, reply);
            enqueue(scope, connection, shared, reply, size);
            first = next;
            goes_on = count_time(scope, connection, &limits);
            left_to = NONE__continue_slice;
        }
        outer->failed |= scope->failed;
        release(scope);
        if (has_raised) {
            give_error(connection, NONE__fail, NULL);
            return;
        }
        if (!goes_on) {
            if (!outer->failed) give_frames(outer, connection, left_to, buffer, data, first, last);
            return;
        }
    }
}

/* Connection.buffer_updated(nbytes) */
static PyObject *connection_buffer_updated(PyObject *connection, PyObject *nbytes) {
    Scope outer, *scope = begin(&outer);
    Py_ssize_t first = 0, last = 0;
    Py_buffer view;
    PyObject *requests = get(scope, connection, Connection__fast_requests);
    PyObject *reader = get(scope, connection, Connection__reader);
    bool is_common = !scope->failed && Py_TYPE(requests) == compiled_requests &&
                     !get_bool(scope, connection, Connection__closing) &&
                     is_none(scope, connection, Connection__queued_frames) &&
                     get_int(scope, connection, Connection__frame_bytes) == 0 &&
                     get_int(scope, reader, FrameReader__large_bytes) == 0 &&
                     !get_bool(scope, reader, FrameReader_is_full);
    PyObject *buffer = is_common ? get(scope, reader, FrameReader__buffer) : NULL;
    int64_t count = as_int64(scope, nbytes);
    if (is_common && !scope->failed && PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) == 0) {
        Bytes data = {view.buf, view.len};
        is_common = commit_received(scope, reader, data, count, &first, &last);
        if (is_common) {
            set_true(scope, connection, Connection__active);
            dispatch(scope, connection, requests, buffer, data, first, last);
        }
        PyBuffer_Release(&view);
    } else
        is_common = false;
    release(scope);
    if (scope->failed || PyErr_Occurred()) return NULL;
    if (is_common) Py_RETURN_NONE;
    return PyObject_CallFunctionObjArgs(python_buffer_updated, connection, nbytes, NULL);
}

/* --- a connection responds ------------------------------------------------------------------------------- */

/* `PlainPartition.encode`. */
static PyObject *encode(Scope *scope, PyObject *partition, int64_t correlation_id, int64_t base_offset,
                        int64_t log_start_offset) {
    PyObject *before = get(scope, partition, PlainPartition__before);
    PyObject *between = get(scope, partition, PlainPartition__between);
    PyObject *after = get(scope, partition, PlainPartition__after);
    bool has_log_start = get_bool(scope, partition, PlainPartition__has_log_start);
    int64_t length = get_int(scope, partition, PlainPartition__length);
    if (scope->failed || !PyBytes_CheckExact(before) || !PyBytes_CheckExact(between) || !PyBytes_CheckExact(after))
        return NULL;
    Py_ssize_t size = 16 + (has_log_start ? 8 : 0) + PyBytes_GET_SIZE(before) + PyBytes_GET_SIZE(between) +
                      PyBytes_GET_SIZE(after);
    PyObject *encoded = hold(scope, PyBytes_FromStringAndSize(NULL, size));
    if (encoded == NULL) return NULL;
    Writer out = {(uint8_t *)PyBytes_AS_STRING(encoded), size, 0};
    put(&out, length, 4);
    put(&out, correlation_id, 4);
    put_bytes(&out, before);
    put(&out, base_offset, 8);
    put_bytes(&out, between);
    if (has_log_start) put(&out, log_start_offset, 8);
    put_bytes(&out, after);
    return encoded;
}

/* `_queue_output` of one buffer. */
static void queue_output(Scope *scope, PyObject *connection, PyObject *shared, PyObject *data) {
    PyObject *output = get(scope, connection, Connection__output);
    PyObject *unsent = scope->failed ? NULL : get(scope, shared, NONE__unsent);
    if (scope->failed) return;
    if (PyList_GET_SIZE(output) == 0) {
        if (PyList_CheckExact(unsent) && PyList_GET_SIZE(unsent))
            push(scope, unsent, Py_NewRef(connection));
        else
            call(scope, shared, NONE_send_later, connection);
    }
    push(scope, output, Py_NewRef(data));
    set_int(scope, connection, Connection__output_bytes,
            get_int(scope, connection, Connection__output_bytes) + PyBytes_GET_SIZE(data));
}

/* Has `on_reply` nothing to do but to send this reply, which is the next in order? */
static bool is_sent_at_once(Scope *scope, PyObject *connection, PyObject *shared, PyObject *reply) {
    if (Py_TYPE(reply) != classes[CLASS_PlainResponse] || !PyType_IsSubtype(Py_TYPE(connection), classes[CLASS_Connection]))
        return false;
    if (get(scope, (PyObject *)Py_TYPE(connection), NONE_on_reply) != python_on_reply) return false;
    PyObject *replies = get(scope, connection, Connection__replies), *output = get(scope, connection, Connection__output);
    PyObject *frames = scope->failed ? NULL : get(scope, shared, NONE_unfinished_frames);
    return !scope->failed && !get_bool(scope, connection, Connection__closing) && PyList_CheckExact(replies) &&
           PyList_GET_SIZE(replies) && PyList_GET_ITEM(replies, 0) == reply && PyList_CheckExact(output) &&
           !is_true(scope, get(scope, shared, NONE__waiting_for_memory)) &&
           !is_true(scope, get(scope, frames, NONE_waiting)) && !scope->failed;
}

/* Sends the reply of a committed request of one batch; false where Python must. */
static bool send_reply(Scope *scope, PyObject *reply) {
    PyObject *appended = get(scope, reply, PlainResponse_appended), *requests = get(scope, reply, PlainResponse_requests);
    if (scope->failed || !PyList_CheckExact(appended) || PyList_GET_SIZE(appended) != 1) return false;
    PyObject *connection = get(scope, requests, PlainRequests_connection), *row = PyList_GET_ITEM(appended, 0);
    if (scope->failed || !PyType_IsSubtype(Py_TYPE(connection), classes[CLASS_Connection])) return false;
    PyObject *shared = get(scope, connection, Connection__shared);
    if (scope->failed || !is_sent_at_once(scope, connection, shared, reply)) return false;
    if (!PyTuple_CheckExact(row) || PyTuple_GET_SIZE(row) != 3) return false;
    PyObject *data = encode(scope, PyTuple_GET_ITEM(row, 0), get_int(scope, reply, PlainResponse_correlation_id),
                            as_int64(scope, PyTuple_GET_ITEM(row, 1)), as_int64(scope, PyTuple_GET_ITEM(row, 2)));
    if (data == NULL || scope->failed || PyBytes_GET_SIZE(data) > get_int(scope, shared, NONE_write_buffer_bytes))
        return false;
    int64_t size = get_int(scope, reply, PlainResponse_request_bytes);
    PyObject *replies = get(scope, connection, Connection__replies);
    if (scope->failed || PyList_SetSlice(replies, 0, 1, NULL) < 0) return false;
    queue_output(scope, connection, shared, data);
    set_int(scope, shared, NONE_in_flight_bytes, get_int(scope, shared, NONE_in_flight_bytes) - size);
    if (PyList_GET_SIZE(replies) == 0)
        set(scope, connection, Connection__replies, Py_NewRef(Py_None));
    else if (!is_none(scope, PyList_GET_ITEM(replies, 0), PlainResponse_buffers))
        call(scope, connection, NONE__send_ready, replies);
    if (!is_none(scope, connection, Connection__queued_frames)) call(scope, connection, NONE_resume, NULL);
    return true;
}

/* ProduceFastPath.on_commit(replies, error) */
static PyObject *path_on_commit(PyObject *path, PyObject *const *arguments, Py_ssize_t count) {
    if (count != 2 || arguments[1] != Py_None || !PyList_CheckExact(arguments[0])) {
        if (count == 2) return PyObject_CallFunctionObjArgs(python_on_commit, path, arguments[0], arguments[1], NULL);
        PyErr_SetString(PyExc_TypeError, "on_commit takes the replies and an error");
        return NULL;
    }
    PyObject *replies = arguments[0];
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(replies); index++) {
        Scope outer, *scope = begin(&outer);
        PyObject *reply = hold(scope, Py_NewRef(PyList_GET_ITEM(replies, index)));
        if (!send_reply(scope, reply) && !scope->failed)
            hold(scope, PyObject_CallMethodObjArgs(path, attributes[NONE__complete].name, reply, Py_False, NULL));
        if (scope->failed) give_error(path, NONE__abort, reply); /* the others go on */
        release(scope);
        if (PyErr_Occurred()) return NULL;
    }
    Py_RETURN_NONE;
}

/* Connection.write_out() */
static PyObject *connection_write_out(PyObject *connection, PyObject *Py_UNUSED(none)) {
    Scope outer, *scope = begin(&outer);
    PyObject *output = get(scope, connection, Connection__output);
    bool is_common = !scope->failed && PyList_CheckExact(output) && PyList_GET_SIZE(output) &&
                     !get_bool(scope, connection, Connection__closing) &&
                     get_int(scope, connection, Connection__output_bytes) < JOIN_BELOW_BYTES &&
                     get_int(scope, connection, Connection__unsent_bytes) == 0 && !scope->failed;
    if (is_common) {
        set(scope, connection, Connection__output, PyList_New(0));
        set_int(scope, connection, Connection__output_bytes, 0);
        PyObject *data = PyList_GET_SIZE(output) == 1 ? Py_NewRef(PyList_GET_ITEM(output, 0))
                                                      : PyObject_CallMethod(empty_bytes, "join", "O", output);
        hold(scope, data);
        call(scope, get(scope, connection, Connection__transport), NONE_write, data);
    }
    release(scope);
    if (scope->failed) return NULL;
    if (is_common) Py_RETURN_NONE;
    return PyObject_CallFunctionObjArgs(python_write_out, connection, NULL);
}

/* --- the module ------------------------------------------------------------------------------------------ */

static PyMethodDef connection_methods[] = {
    {"buffer_updated", connection_buffer_updated, METH_O, NULL},
    {"get_buffer", connection_get_buffer, METH_O, NULL},
    {"write_out", connection_write_out, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef requests_methods[] = {{"append", requests_append, METH_O, NULL}, {NULL, NULL, 0, NULL}};
static PyMethodDef path_methods[] = {
    {"on_commit", (PyCFunction)(void (*)(void))path_on_commit, METH_FASTCALL, NULL}, {NULL, NULL, 0, NULL}};

/* A value of one of `bind`'s dictionaries; NULL with KeyError. */
static PyObject *given(PyObject *values, const char *name) {
    PyObject *found = PyDict_GetItemString(values, name);
    if (found == NULL && !PyErr_Occurred()) PyErr_SetString(PyExc_KeyError, name);
    return found;
}

static bool find_slots(void) {
    for (int which = 0; which < ATTRIBUTE_COUNT; which++) {
        Attribute *attribute = &attributes[which];
        if (attribute->name == NULL) attribute->name = PyUnicode_InternFromString(attribute->text);
        if (attribute->name == NULL) return false;
        if (attribute->owner == CLASS_NONE) continue;
        PyObject *found = PyObject_GetAttr((PyObject *)classes[attribute->owner], attribute->name);
        if (found == NULL) return false;
        PyMemberDef *member = Py_TYPE(found) == &PyMemberDescr_Type ? ((PyMemberDescrObject *)found)->d_member : NULL;
        attribute->offset = member != NULL && member->type == T_OBJECT_EX ? member->offset : 0;
        Py_DECREF(found);
    }
    return true;
}

/* Puts functions in the place of a class's methods. */
static bool replace_methods(PyObject *type, PyMethodDef *methods) {
    if (!PyType_Check(type)) {
        PyErr_SetString(PyExc_TypeError, "a class is needed");
        return false;
    }
    for (; methods->ml_name != NULL; methods++) {
        PyObject *method = PyDescr_NewMethod((PyTypeObject *)type, methods);
        int status = method == NULL ? -1 : PyObject_SetAttrString(type, methods->ml_name, method);
        Py_XDECREF(method);
        if (status < 0) return false;
    }
    return true;
}

static bool keep(PyObject **place, PyObject *object) {
    if (object == NULL) return false;
    Py_XDECREF(*place);
    *place = Py_NewRef(object);
    return true;
}

static bool keep_method(PyObject **place, int owner, const char *name) {
    PyObject *found = PyObject_GetAttrString((PyObject *)classes[owner], name);
    bool kept = keep(place, found);
    Py_XDECREF(found);
    return kept;
}

/* bind(classes, constants, functions, compiled): once, before anything else is called. */
static PyObject *bind(PyObject *Py_UNUSED(module), PyObject *arguments) {
    PyObject *by_name, *constants, *functions, *connection, *requests, *path;
    if (!PyArg_ParseTuple(arguments, "O!O!O!(OOO)", &PyDict_Type, &by_name, &PyDict_Type, &constants, &PyDict_Type,
                          &functions, &connection, &requests, &path))
        return NULL;
    PyObject *found;
#define TAKE_CLASS(name) \
    if ((found = given(by_name, #name)) == NULL || !keep((PyObject **)&classes[CLASS_##name], found)) return NULL;
    CLASSES(TAKE_CLASS)
#define TAKE_CONSTANT(name) \
    if ((found = given(constants, #name)) == NULL || ((name = PyLong_AsSsize_t(found)) == -1 && PyErr_Occurred())) \
        return NULL;
    CONSTANTS(TAKE_CONSTANT)
    if ((found = given(constants, "TIME_SLICE_SECONDS")) == NULL) return NULL;
    time_slice_seconds = PyFloat_AsDouble(found);
    if (PyErr_Occurred() || !keep(&crc32c, given(functions, "crc32c")) ||
        !keep(&wall_clock_ms, given(functions, "wall_clock_ms")) ||
        !keep_method(&python_buffer_updated, CLASS_Connection, "buffer_updated") ||
        !keep_method(&python_get_buffer, CLASS_Connection, "get_buffer") ||
        !keep_method(&python_write_out, CLASS_Connection, "write_out") ||
        !keep_method(&python_on_reply, CLASS_Connection, "on_reply") ||
        !keep_method(&python_append, CLASS_PlainRequests, "append") ||
        !keep_method(&python_on_commit, CLASS_ProduceFastPath, "on_commit") || !find_slots())
        return NULL;
    if (!replace_methods(connection, connection_methods) || !replace_methods(requests, requests_methods) ||
        !replace_methods(path, path_methods))
        return NULL;
    compiled_requests = (PyTypeObject *)Py_NewRef(requests);
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {{"bind", bind, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "_fast_path", NULL, -1, module_methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fast_path(void) {
    PyObject *module = PyModule_Create(&module_definition);
    if (module != NULL && (PyModule_AddStringConstant(module, "SOURCE_DIGEST", SOURCE_DIGEST) < 0 ||
                           (empty_bytes = PyBytes_FromStringAndSize(NULL, 0)) == NULL))
        Py_CLEAR(module);
    return module;
}
