/* Writes sections and steps into the progress file: sections.py and progress_file.py in C.

   Those two say what is written and are what runs where this cannot be built; here are the
   same records with fewer cold pages and cache lines, which is what they cost after a pause.

   One Writer belongs to one progress file.  It is called with a section's name and gives a
   context manager.  All of its sizes and offsets are checked when it is made, against the
   buffer that it then holds for as long as it lives.  Nothing below runs Python code while a
   record is being written, so under the GIL neither another thread, nor a signal handler, nor
   a garbage collection ever comes between.
*/
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>
#include <time.h>

#ifdef Py_GIL_DISABLED
#error "the GIL is what keeps these records whole"
#endif
#if !defined(__GNUC__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a progress file is little-endian, and is written with the atomic stores of GCC and clang"
#endif
#if PY_VERSION_HEX < 0x030A0000
#error "Python 3.10 or later"
#endif

/* As _FRESH_NS in sections.py. */
#define FRESH_NS 20000
#define KINDS 3
/* Names remembered by the address of their text; a power of two. */
#define REMEMBERED 64
/* More than any layout has had; keeps every product below far from an overflow. */
#define MOST_RECORDS 65536

typedef struct {
    Py_ssize_t at; /* of the first record, in 64-bit integers from the beginning of the file */
    Py_ssize_t capacity;
} Table;

/* A row of the table of totals. */
typedef struct {
    PyObject *name; /* also a key of the Writer's names, from which it is never taken out */
    int64_t text;
    int64_t kind;
    int64_t count;
    int64_t wall;
    int64_t cpu;
    int64_t written; /* the count that the file has */
    int64_t *row;
} Total;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyTypeObject *span_type;
    int64_t *file; /* NULL once this process is no rank any more */
    char written;  /* false where nobody reads the file: times are taken, and nothing is noted */
    int64_t *event;
    int64_t *step; /* and when it began, and how many there were */
    unsigned long who; /* thread of the latest reading of its CPU clock */
    int64_t read_at;   /* when that was, on the monotonic clock, which times all sections */
    int64_t behind;    /* the monotonic clock minus the CPU's, and the wall clock minus it, then */
    int64_t wall_minus_mono;
    int64_t sections;
    int64_t steps;
    Total *totals;
    Py_ssize_t used;
    Py_ssize_t free_count;
    uint16_t *free; /* open rows that nobody has, the next one last */
    Table ring;
    Table rows;
    Table table;
    Table step_ring;
    int64_t *used_slot;
    uint16_t remembered[REMEMBERED]; /* number of a total plus one */
    PyObject *names[KINDS];
    PyObject *text;      /* str -> number of the text */
    PyObject *read_text; /* number of a text -> str */
    PyObject *full;      /* is called when a total found no room */
    Py_buffer buffer;
} Writer;

/* A section that is being or may be entered. */
typedef struct {
    PyObject_HEAD
    Writer *writer;
    int64_t *row; /* of the table of open sections; NULL while it has none */
    int64_t text;
    int64_t started; /* on the wall clock */
    int64_t cpu_at_start;
    /* For whoever entered it: when, on the monotonic clock, and what the latest entry took. */
    long long began;
    long long wall;
    long long cpu;
    int32_t total; /* -1: there was no room for it */
    int32_t entered;
} Span;

typedef struct {
    PyTypeObject *writer_type;
    PyTypeObject *span_type;
} State;

/* Whole and in this order: others read the file at any moment. */
static inline void
put(int64_t *slot, int64_t value)
{
    __atomic_store_n(slot, value, __ATOMIC_RELEASE);
}

static inline int64_t
clock_ns(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        return 0;
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The time on the monotonic clock; how the other two stand to it is brought up to date for the
   calling thread. */
static inline int64_t
read_clocks(Writer *self, unsigned long thread)
{
    int64_t now = clock_ns(CLOCK_MONOTONIC);
    if (self->who != thread || now - self->read_at >= FRESH_NS) {
        self->wall_minus_mono = clock_ns(CLOCK_REALTIME) - now;
        self->behind = now - clock_ns(CLOCK_THREAD_CPUTIME_ID);
        self->who = thread;
        self->read_at = now;
    }
    return now;
}

/* Sections. */

static PyObject *
span_enter(PyObject *object, PyObject *Py_UNUSED(none))
{
    Span *self = (Span *)object;
    Writer *writer = self->writer;
    if (writer->file == NULL)
        Py_RETURN_NONE;
    unsigned long thread = PyThread_get_thread_ident();
    int64_t now = read_clocks(writer, thread);
    self->cpu_at_start = now - writer->behind;
    self->began = now;
    self->entered = 1;
    if (!writer->written)
        Py_RETURN_NONE;
    self->started = now += writer->wall_minus_mono;
    if (self->row == NULL && writer->free_count > 0) {
        writer->free_count--;
        self->row = writer->file + writer->rows.at + 3 * writer->free[writer->free_count];
    }
    if (self->row != NULL) {
        put(self->row, self->text);
        put(self->row + 2, (int64_t)thread);
        put(self->row + 1, now);
    }
    put(writer->event, now);
    Py_RETURN_NONE;
}

static PyObject *
span_exit(PyObject *object, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
    Span *self = (Span *)object;
    Writer *writer = self->writer;
    if (writer->file == NULL || !self->entered)
        Py_RETURN_NONE;
    int64_t now = read_clocks(writer, PyThread_get_thread_ident());
    int64_t wall = self->wall = now - self->began;
    int64_t cpu = self->cpu = now - writer->behind - self->cpu_at_start;
    if (!writer->written)
        Py_RETURN_NONE;
    if (self->row != NULL) {
        put(self->row + 1, 0);
        writer->free[writer->free_count] =
            (uint16_t)((self->row - writer->file - writer->rows.at) / 3);
        writer->free_count++;
        self->row = NULL;
    }
    if (self->total >= 0) {
        Total *total = &writer->totals[self->total];
        total->count++;
        total->wall += wall;
        total->cpu += cpu;
    }
    int64_t *record = writer->file + writer->ring.at + 7 * (writer->sections % writer->ring.capacity);
    int64_t number = ++writer->sections;
    put(record, number);
    put(record + 1, self->text);
    put(record + 2, self->started);
    put(record + 3, wall);
    put(record + 4, cpu);
    put(record + 5, *writer->step);
    put(record + 6, number);
    put(writer->event, now + writer->wall_minus_mono);
    Py_RETURN_NONE;
}

static void
span_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Writer *writer = ((Span *)object)->writer;
    type->tp_free(object);
    Py_DECREF(writer);
    Py_DECREF(type);
}

static PyMethodDef span_methods[] = {
    {"__enter__", span_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))span_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef span_members[] = {
    {"began", T_LONGLONG, offsetof(Span, began), READONLY,
     "When it was entered last, in nanoseconds of the monotonic clock."},
    {"wall", T_LONGLONG, offsetof(Span, wall), READONLY,
     "Nanoseconds that the latest entry took."},
    {"cpu", T_LONGLONG, offsetof(Span, cpu), READONLY,
     "Nanoseconds of its thread's processor time."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot span_slots[] = {
    {Py_tp_doc, "A named stretch of a rank's work; a context manager that swallows nothing."},
    {Py_tp_dealloc, span_dealloc},
    {Py_tp_methods, span_methods},
    {Py_tp_members, span_members},
    {0, NULL},
};

static PyType_Spec span_spec = {
    .name = "hanglab.recorder.rank.native.writer.Span",
    .basicsize = sizeof(Span),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = span_slots,
};

/* The Writer. */

static inline uint16_t *
place_of(Writer *self, PyObject *name, long kind)
{
    uintptr_t address = (uintptr_t)name >> 4;
    return &self->remembered[(address ^ (address >> 6) ^ (uintptr_t)kind) % REMEMBERED];
}

/* Number of the total of this name and kind; -1 if there is none, -2 with an exception set. */
static Py_ssize_t
known(Writer *self, PyObject *name, long kind)
{
    if (self->names[kind] == NULL)
        return -1;
    PyObject *number = PyDict_GetItemWithError(self->names[kind], name);
    if (number == NULL)
        return PyErr_Occurred() ? -2 : -1;
    return PyLong_AsSsize_t(number);
}

/* The same, made if need be; -1 and the number of the text if there is no room for it. */
static Py_ssize_t
find_total(Writer *self, PyObject *name, long kind, int64_t *text)
{
    Py_ssize_t found = known(self, name, kind);
    if (found != -1 || self->text == NULL)
        return found;
    PyObject *number = PyObject_CallOneArg(self->text, name);
    if (number == NULL)
        return -2;
    *text = PyLong_AsLongLong(number);
    Py_DECREF(number);
    if (*text == -1 && PyErr_Occurred())
        return -2;
    /* While that ran, a signal handler or another thread may have done the same. */
    found = known(self, name, kind);
    if (found != -1 || self->names[kind] == NULL || self->file == NULL)
        return found;
    if (self->used >= self->table.capacity) {
        PyObject *nothing = PyObject_CallNoArgs(self->full);
        Py_XDECREF(nothing);
        return nothing == NULL ? -2 : -1;
    }
    number = PyLong_FromSsize_t(self->used);
    if (number == NULL)
        return -2;
    int failed = PyDict_SetItem(self->names[kind], name, number);
    Py_DECREF(number);
    if (failed)
        return -2;
    int64_t *row = self->file + self->table.at + 5 * self->used;
    self->totals[self->used] =
        (Total){.name = Py_NewRef(name), .text = *text, .kind = kind, .row = row};
    put(row, *text);
    put(row + 1, kind);
    put(row + 2, 0);
    put(row + 3, 0);
    put(row + 4, 0);
    found = self->used++;
    put(self->used_slot, self->used);
    return found;
}

static PyObject *
new_span(Writer *self, Py_ssize_t total, int64_t text)
{
    Span *span = (Span *)self->span_type->tp_alloc(self->span_type, 0);
    if (span == NULL)
        return NULL;
    span->writer = (Writer *)Py_NewRef((PyObject *)self);
    span->text = text;
    span->total = (int32_t)total;
    return (PyObject *)span;
}

static PyObject *
section_otherwise(Writer *self, PyObject *name, long kind)
{
    int64_t text = 0;
    Py_ssize_t total = -1;
    if (self->file != NULL) {
        name = PyObject_Str(name);
        if (name == NULL)
            return NULL;
        total = find_total(self, name, kind, &text);
        if (total >= 0) {
            text = self->totals[total].text;
            *place_of(self, self->totals[total].name, kind) = (uint16_t)(total + 1);
        }
        Py_DECREF(name);
        if (total < -1)
            return NULL;
    }
    return new_span(self, total, text);
}

static PyObject *
writer_section(PyObject *object, PyObject *const *args, size_t flags, PyObject *keywords)
{
    Writer *self = (Writer *)object;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    PyObject *name = NULL, *kind_object = NULL;
    long kind = 0;
    if (keywords == NULL && count == 1) {
        name = args[0];
    }
    else {
        Py_ssize_t named = keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords);
        if (count > 0)
            name = args[0];
        if (count > 1)
            kind_object = args[1];
        int wrong = count > 2;
        for (Py_ssize_t i = 0; i < named; i++) {
            PyObject *keyword = PyTuple_GET_ITEM(keywords, i);
            if (name == NULL && PyUnicode_CompareWithASCIIString(keyword, "name") == 0)
                name = args[count + i];
            else if (kind_object == NULL && PyUnicode_CompareWithASCIIString(keyword, "kind") == 0)
                kind_object = args[count + i];
            else
                wrong = 1;
        }
        if (wrong || name == NULL) {
            PyErr_SetString(PyExc_TypeError, "a section takes a name, and a kind or none");
            return NULL;
        }
        if (kind_object != NULL) {
            kind = PyLong_AsLong(kind_object);
            if (kind == -1 && PyErr_Occurred())
                return NULL;
            if (kind < 0 || kind >= KINDS) {
                PyErr_SetString(PyExc_ValueError, "there is no such kind of section");
                return NULL;
            }
        }
    }
    Py_ssize_t total = (Py_ssize_t)*place_of(self, name, kind) - 1;
    if (total >= 0 && self->totals[total].name == name && self->totals[total].kind == kind)
        return new_span(self, total, self->totals[total].text);
    return section_otherwise(self, name, kind);
}

static PyObject *
writer_step(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *keywords)
{
    Writer *self = (Writer *)object;
    Py_ssize_t given = count + (keywords == NULL ? 0 : PyTuple_GET_SIZE(keywords));
    if (given > 1 || (given > count && PyUnicode_CompareWithASCIIString(
                                           PyTuple_GET_ITEM(keywords, 0), "number") != 0)) {
        PyErr_SetString(PyExc_TypeError, "a step takes a number or none");
        return NULL;
    }
    if (self->file == NULL)
        Py_RETURN_NONE;
    int64_t step = *self->step + 1;
    if (given && args[0] != Py_None) {
        PyObject *number = PyNumber_Index(args[0]);
        int64_t value = number == NULL ? -1 : PyLong_AsLongLong(number);
        Py_XDECREF(number);
        if (value == -1 && PyErr_Occurred()) {
            if (!PyErr_ExceptionMatches(PyExc_TypeError) &&
                !PyErr_ExceptionMatches(PyExc_OverflowError))
                return NULL;
            PyErr_Clear();
            value = *self->step + 1;
        }
        step = value;
        if (self->file == NULL)
            Py_RETURN_NONE;
    }
    int64_t *record =
        self->file + self->step_ring.at + 4 * (self->steps % self->step_ring.capacity);
    int64_t number = ++self->steps;
    int64_t now = clock_ns(CLOCK_REALTIME);
    put(record, number);
    put(record + 1, step);
    put(record + 2, now);
    put(record + 3, number);
    put(self->step, step);
    put(self->step + 1, now);
    put(self->step + 2, number);
    Py_RETURN_NONE;
}

static PyObject *
writer_write_totals(PyObject *object, PyObject *Py_UNUSED(none))
{
    Writer *self = (Writer *)object;
    for (Py_ssize_t i = 0; self->file != NULL && i < self->used; i++) {
        Total *total = &self->totals[i];
        if (total->written != total->count) {
            total->written = total->count;
            put(total->row + 2, total->count);
            put(total->row + 3, total->wall);
            put(total->row + 4, total->cpu);
        }
    }
    Py_RETURN_NONE;
}

static PyObject *
writer_innermost(PyObject *object, PyObject *thread)
{
    Writer *self = (Writer *)object;
    int64_t wanted = PyLong_AsLongLong(thread);
    if (wanted == -1 && PyErr_Occurred())
        return NULL;
    int64_t latest = 0, text = 0;
    for (Py_ssize_t i = 0; self->file != NULL && i < self->rows.capacity; i++) {
        int64_t *row = self->file + self->rows.at + 3 * i;
        if (row[1] != 0 && row[1] >= latest && row[2] == wanted) {
            latest = row[1];
            text = row[0];
        }
    }
    if (latest == 0 || self->read_text == NULL)
        return PyUnicode_FromString("");
    return PyObject_CallFunction(self->read_text, "L", (long long)text);
}

static PyObject *
writer_leave(PyObject *object, PyObject *Py_UNUSED(none))
{
    ((Writer *)object)->file = NULL;
    Py_RETURN_NONE;
}

/* Whether a table of this (offset, capacity, record) lies within the buffer. */
static int
take_table(Writer *self, PyObject *description, int fields, Table *table)
{
    Py_ssize_t at, capacity, record;
    if (!PyTuple_Check(description)) {
        PyErr_SetString(PyExc_TypeError, "a table is a tuple of offset, capacity and record");
        return 0;
    }
    if (!PyArg_ParseTuple(description, "nnn", &at, &capacity, &record))
        return 0;
    if (record != fields * 8 || capacity < 1 || capacity >= MOST_RECORDS || at < 0 || at % 8 ||
        at > self->buffer.len || capacity * record > self->buffer.len - at) {
        PyErr_SetString(PyExc_ValueError, "a table is not where it could be written");
        return 0;
    }
    table->at = at / 8;
    table->capacity = capacity;
    return 1;
}

static int
take_slots(Writer *self, Py_ssize_t step, Py_ssize_t event, Py_ssize_t used)
{
    Py_ssize_t slots = self->buffer.len / 8;
    if (step < 0 || step + 3 > slots || event < 0 || event >= slots || used < 0 || used >= slots) {
        PyErr_SetString(PyExc_ValueError, "a slot is not in the file");
        return 0;
    }
    self->step = self->file + step;
    self->event = self->file + event;
    self->used_slot = self->file + used;
    return 1;
}

static PyObject *
writer_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"buffer", "sections", "totals", "open", "steps", "slots",
                            "text",   "read_text", "full",  NULL};
    PyObject *buffer, *ring, *table, *rows, *steps, *text, *read_text, *full;
    Py_ssize_t step, event, used;
    State *state = PyType_GetModuleState(type);
    if (state == NULL ||
        !PyArg_ParseTupleAndKeywords(args, keywords, "OOOOO(nnn)OOO", names, &buffer, &ring,
                                     &table, &rows, &steps, &step, &event, &used, &text,
                                     &read_text, &full))
        return NULL;
    Writer *self = (Writer *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = writer_section;
    self->written = 1;
    self->span_type = (PyTypeObject *)Py_NewRef((PyObject *)state->span_type);
    self->text = Py_NewRef(text);
    self->read_text = Py_NewRef(read_text);
    self->full = Py_NewRef(full);
    for (int kind = 0; kind < KINDS; kind++)
        if ((self->names[kind] = PyDict_New()) == NULL)
            goto failed;
    if (PyObject_GetBuffer(buffer, &self->buffer, PyBUF_WRITABLE) < 0)
        goto failed;
    if ((uintptr_t)self->buffer.buf % 8) {
        PyErr_SetString(PyExc_ValueError, "the buffer is not aligned");
        goto failed;
    }
    self->file = self->buffer.buf;
    if (!take_table(self, ring, 7, &self->ring) || !take_table(self, table, 5, &self->table) ||
        !take_table(self, rows, 3, &self->rows) || !take_table(self, steps, 4, &self->step_ring) ||
        !take_slots(self, step, event, used))
        goto failed;
    self->totals = PyMem_Calloc((size_t)self->table.capacity, sizeof(Total));
    self->free = PyMem_Calloc((size_t)self->rows.capacity, sizeof(uint16_t));
    if (self->totals == NULL || self->free == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    self->free_count = self->rows.capacity;
    for (Py_ssize_t i = 0; i < self->free_count; i++)
        self->free[i] = (uint16_t)(self->free_count - 1 - i);
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static int
writer_traverse(PyObject *object, visitproc visit, void *arg)
{
    Writer *self = (Writer *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->span_type);
    for (int kind = 0; kind < KINDS; kind++)
        Py_VISIT(self->names[kind]);
    Py_VISIT(self->text);
    Py_VISIT(self->read_text);
    Py_VISIT(self->full);
    Py_VISIT(self->buffer.obj);
    return 0;
}

static int
writer_clear(PyObject *object)
{
    Writer *self = (Writer *)object;
    /* From here on it does nothing; the buffer stays until nobody can call it any more. */
    self->file = NULL;
    for (int kind = 0; kind < KINDS; kind++)
        Py_CLEAR(self->names[kind]);
    Py_CLEAR(self->text);
    Py_CLEAR(self->read_text);
    Py_CLEAR(self->full);
    return 0;
}

static void
writer_dealloc(PyObject *object)
{
    Writer *self = (Writer *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    writer_clear(object);
    for (Py_ssize_t i = 0; i < self->used; i++)
        Py_XDECREF(self->totals[i].name);
    PyMem_Free(self->totals);
    PyMem_Free(self->free);
    PyBuffer_Release(&self->buffer);
    Py_XDECREF(self->span_type);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef writer_methods[] = {
    {"step", (PyCFunction)(void (*)(void))writer_step, METH_FASTCALL | METH_KEYWORDS,
     "step($self, number=None)\n--\n\n"
     "A step of training begins; its number is one more than the last one's unless given."},
    {"write_totals", writer_write_totals, METH_NOARGS,
     "write_totals($self)\n--\n\nBring the table of totals up to date."},
    {"innermost", writer_innermost, METH_O,
     "innermost($self, thread, /)\n--\n\n"
     "Name of the section that was opened last on a thread and is open; \"\" if none is."},
    {"leave", writer_leave, METH_NOARGS,
     "leave($self)\n--\n\nWrite nothing any more: this process is no rank."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef writer_members[] = {
    {"written", T_BOOL, offsetof(Writer, written), 0,
     "False where nobody reads the file: times are taken, and nothing is noted."},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Writer, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_doc, "Context manager around a named stretch of a step."},
    {Py_tp_new, writer_new},
    {Py_tp_dealloc, writer_dealloc},
    {Py_tp_traverse, writer_traverse},
    {Py_tp_clear, writer_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_methods, writer_methods},
    {Py_tp_members, writer_members},
    {0, NULL},
};

static PyType_Spec writer_spec = {
    .name = "hanglab.recorder.rank.native.writer.Writer",
    .basicsize = sizeof(Writer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
             Py_TPFLAGS_IMMUTABLETYPE,
    .slots = writer_slots,
};

/* The module. */

static int
module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->span_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &span_spec, NULL);
    if (state->span_type == NULL)
        return -1;
    state->writer_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &writer_spec, NULL);
    if (state->writer_type == NULL)
        return -1;
    return PyModule_AddType(module, state->writer_type);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->writer_type);
    Py_VISIT(state->span_type);
    return 0;
}

static int
module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->writer_type);
    Py_CLEAR(state->span_type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "writer",
    .m_doc = "Writes sections and steps into the progress file.",
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC
PyInit_writer(void)
{
    return PyModuleDef_Init(&module_definition);
}
