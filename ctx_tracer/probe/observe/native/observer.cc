// Facts of a tensor, read in C++ and returned as the very Observation that the Python observer made for such a tensor.
//
// What a tensor is goes into a key of 64-bit words: everything that the Python observer looks at, so that equal keys
// mean equal observations. A key that is not known, and every tensor that is out of the ordinary, is read by the Python
// observer. Built against the headers of the installed Paddle (2.6 to 3.3); Python 3.8 and later. Called with the
// interpreter's lock held.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <time.h>

#include <cstring>
#include <string>
#include <typeinfo>
#include <vector>

#include "paddle/phi/api/include/tensor.h"
#include "paddle/phi/core/dense_tensor.h"
// The header of Paddle 2.6 needs one that its wheel leaves out: there dist tensors are read by the Python observer.
#if __has_include("paddle/phi/core/distributed/auto_parallel/proto_helper.h")
#include "paddle/phi/core/distributed/auto_parallel/dist_tensor.h"
#define READS_DIST_TENSORS
#endif

namespace {

// How Paddle's eager tensors begin in memory (paddle/utils/pybind.h).
struct PyTensor {
  PyObject_HEAD
  paddle::Tensor tensor;
};

// Nine dimensions are the most that Paddle has: two times nine, a mesh of some hundred ranks and a name fit. What is
// larger is read by the Python observer.
constexpr int kMaxWords = 256;

class Key {
 public:
  bool add(uint64_t word) {
    if (size_ == kMaxWords) return false;
    words_[size_++] = word;
    return true;
  }

  bool add(const phi::DDim& dims) {
    if (size_ + dims.size() > kMaxWords) return false;
    std::memcpy(words_ + size_, dims.Get(), sizeof(uint64_t) * dims.size());
    size_ += dims.size();
    return true;
  }

  bool add(const std::vector<int64_t>& numbers) {
    if (!add(numbers.size()) || size_ + numbers.size() > kMaxWords) return false;
    std::memcpy(words_ + size_, numbers.data(), sizeof(uint64_t) * numbers.size());
    size_ += static_cast<int>(numbers.size());
    return true;
  }

  bool add(const std::string& text) {
    size_t words = (text.size() + 7) / 8;
    if (!add(text.size()) || size_ + words > kMaxWords) return false;
    if (words) words_[size_ + words - 1] = 0;
    std::memcpy(words_ + size_, text.data(), text.size());
    size_ += static_cast<int>(words);
    return true;
  }

  uint64_t hash() const {
    uint64_t hash = size_;
    for (int i = 0; i < size_; ++i) {
      hash = (hash ^ words_[i]) * 0x9e3779b97f4a7c15ull;  // 2^64 over the golden ratio
      hash ^= hash >> 32;
    }
    return hash;
  }

  int size() const { return size_; }
  const uint64_t* words() const { return words_; }

 private:
  int size_ = 0;
  uint64_t words_[kMaxWords];
};

// Key -> Observation. When it is full it forgets everything: what training still sees is back after one reading each.
class Known {
 public:
  explicit Known(size_t capacity) : capacity_(capacity) {}
  ~Known() { clear(); }

  PyObject* find(const Key& key, uint64_t hash) const {  // borrowed
    if (cells_.empty()) return nullptr;
    for (size_t at = hash & mask();; at = (at + 1) & mask()) {
      const Cell& cell = cells_[at];
      if (cell.observation == nullptr) return nullptr;
      if (cell.hash == hash && cell.size == key.size() &&
          std::memcmp(&words_[cell.begins], key.words(), sizeof(uint64_t) * key.size()) == 0) {
        return cell.observation;
      }
    }
  }

  void insert(const Key& key, uint64_t hash, PyObject* observation) {
    if (find(key, hash) != nullptr) return;  // read again meanwhile, by Python code that the reading ran
    if (count_ >= capacity_) clear();
    if (2 * (count_ + 1) > cells_.size()) grow();
    place({hash, words_.size(), key.size(), observation});
    words_.insert(words_.end(), key.words(), key.words() + key.size());
    Py_INCREF(observation);
    ++count_;
  }

  size_t count() const { return count_; }

  int traverse(visitproc visit, void* arg) const {
    for (const Cell& cell : cells_) Py_VISIT(cell.observation);
    return 0;
  }

  void clear() {
    std::vector<Cell> cells;
    cells.swap(cells_);  // before anything that a reference's end may call
    words_.clear();
    count_ = 0;
    for (Cell& cell : cells) Py_XDECREF(cell.observation);
  }

 private:
  struct Cell {
    uint64_t hash = 0;
    size_t begins = 0;
    int size = 0;
    PyObject* observation = nullptr;
  };

  size_t mask() const { return cells_.size() - 1; }

  void place(const Cell& cell) {
    size_t at = cell.hash & mask();
    while (cells_[at].observation != nullptr) at = (at + 1) & mask();
    cells_[at] = cell;
  }

  void grow() {
    std::vector<Cell> cells(cells_.empty() ? 256 : 2 * cells_.size());
    cells.swap(cells_);
    for (const Cell& cell : cells) {
      if (cell.observation != nullptr) place(cell);
    }
  }

  size_t capacity_, count_ = 0;
  std::vector<Cell> cells_;  // a power of two, at most half of them used
  std::vector<uint64_t> words_;
};

enum class Kind : int8_t { kUnknown, kDense, kDist, kOther };

// A clock reading costs as much as a slot: one slot in so many is timed, for all of them.
constexpr unsigned kTimedEvery = 16;

struct Recorder {
  PyObject_HEAD
  PyTypeObject* tensor_type;
  PyObject* read;     // the Python observer's
  PyObject* nothing;  // what is noted of a slot that could not be read
  PyGetSetDef* stop_gradient;
  PyGetSetDef* persistable;
  Known* known;
  Kind kinds[128];  // by Paddle's number of the implementing class
  bool places;      // this Paddle knows more than one place
  unsigned tick;
  long long spent_ns;
  unsigned long long misses;
};

long long now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// A getter of the tensor type, called as attribute access would call it; -1 with an exception set.
int flag(PyObject* tensor, PyGetSetDef* attribute) {
  PyObject* value = attribute->get(tensor, attribute->closure);
  if (value == nullptr) return -1;
  Py_DECREF(value);  // True and False live on
  return value == Py_True ? 1 : value == Py_False ? 0 : -2;
}

#if PY_VERSION_HEX < 0x03090000  // as Python 3.8 calls them
#define PyObject_Vectorcall _PyObject_Vectorcall
#define Py_TPFLAGS_HAVE_VECTORCALL _Py_TPFLAGS_HAVE_VECTORCALL
#endif

PyObject* call(PyObject* callable, PyObject* argument) {
  return PyObject_Vectorcall(callable, &argument, 1, nullptr);
}

// Paddle's own test of the class costs a call across libraries; its number is a byte in the tensor.
Kind kind_of(Recorder* self, PyObject* tensor, const phi::TensorBase* base) {
  int id = base->type_info().id();
  if (id < 0) return Kind::kOther;
  if (self->kinds[id] == Kind::kUnknown) {
    for (auto asked : {std::make_pair("is_dense", Kind::kDense), std::make_pair("is_dist", Kind::kDist)}) {
      PyObject* answer = PyObject_CallMethod(tensor, asked.first, nullptr);
      if (answer == Py_True) self->kinds[id] = asked.second;
      if (answer == nullptr) PyErr_Clear();
      Py_XDECREF(answer);
    }
    if (self->kinds[id] == Kind::kUnknown) self->kinds[id] = Kind::kOther;
  }
  return self->kinds[id];
}

// The facts of a dense tensor (`dist` false) or of the local part of a dist tensor.
bool add_dense(const Recorder* self, const phi::DenseTensor& dense, bool initialized, uint64_t flags, bool dist,
               Key* key) {
  const phi::DenseTensorMeta& meta = dense.meta();
  int rank = meta.dims.size(), strides = dist ? 0 : meta.strides.size();
  // Other layouts are shown with their dimensions in another order, depending on what runs at the moment.
  if (rank < 0 || strides < 0 || meta.layout != phi::DataLayout::NCHW) return false;
  uint64_t place = 0;
  if (self->places && initialized) {
    const phi::Place& held = dense.place();
    if (held.GetType() == phi::AllocationType::CUSTOM) return false;
    place = static_cast<uint8_t>(held.GetType()) | static_cast<uint64_t>(static_cast<uint8_t>(held.GetDeviceId())) << 8;
  }
  if (self->places && !initialized) return false;
  return key->add(static_cast<uint64_t>(meta.dtype) << 56 | static_cast<uint64_t>(rank) << 48 |
                  static_cast<uint64_t>(strides) << 40 | place << 24 | flags) &&
         key->add(meta.dims) && (dist || key->add(meta.strides));
}

#ifdef READS_DIST_TENSORS
bool add_dist(const phi::distributed::DistTensor& dist, Key* key) {
  const phi::distributed::ProcessMesh& mesh = dist.process_mesh();
  if (dist.dims().size() < 0 || dist.placements().empty() || mesh.process_ids().empty()) return false;
  if (!key->add(dist.dims().size()) || !key->add(dist.dims()) || !key->add(dist.placements().size())) return false;
  for (const auto& placement : dist.placements()) {
    uint64_t word = 0;
    if (placement == nullptr) return false;
    if (typeid(*placement) == typeid(phi::distributed::Shard)) {  // others than itself are shards too
      int dim = static_cast<const phi::distributed::Shard*>(placement.get())->get_dim();
      word = 1ull << 32 | static_cast<uint32_t>(dim);
    } else if (placement->is_replicated()) {
      word = 2ull << 32;
    } else if (placement->is_partial()) {
      auto type = static_cast<const phi::distributed::Partial*>(placement.get())->get_reduce_type();
      word = 3ull << 32 | static_cast<uint32_t>(type);
    } else {
      return false;
    }
    if (!key->add(word)) return false;
  }
  if (!key->add(mesh.shape()) || !key->add(mesh.process_ids()) || !key->add(mesh.dim_names().size())) return false;
  for (const std::string& name : mesh.dim_names()) {
    if (!key->add(name)) return false;
  }
  return true;
}
#endif

// Whether `key` now says all that the Python observer would look at; false with or without an exception set.
bool fill(Recorder* self, PyObject* object, Key* key) {
  const paddle::Tensor& tensor = reinterpret_cast<PyTensor*>(object)->tensor;
  const phi::TensorBase* base = tensor.impl().get();
  if (base == nullptr) return false;
  Kind kind = kind_of(self, object, base);
  if (kind == Kind::kOther) return false;
  int stop_gradient = flag(object, self->stop_gradient);
  int persistable = flag(object, self->persistable);
  if (stop_gradient < 0 || persistable < 0) return false;
  uint64_t flags = stop_gradient | persistable << 1;
  if (kind == Kind::kDense) {
    auto dense = static_cast<const phi::DenseTensor*>(base);
    bool initialized = dense->initialized();
    if (!add_dense(self, *dense, initialized, flags | initialized << 2, false, key)) return false;
  } else {
#ifdef READS_DIST_TENSORS
    auto dist = static_cast<const phi::distributed::DistTensor*>(base);
    // The only access that does not follow a null pointer; nothing is changed through it.
    const phi::DenseTensor* local = const_cast<phi::distributed::DistTensor*>(dist)->unsafe_mutable_value();
    if (local == nullptr || !local->initialized()) return false;
    if (!add_dense(self, *local, true, flags | 1 << 2 | 1 << 3, true, key) || !add_dist(*dist, key)) return false;
#else
    return false;
#endif
  }
  if (persistable == 0) return true;
  const std::string& name = tensor.name();
  return !name.empty() && key->add(name);
}

// A new reference to the observation of any object; null with an exception set.
PyObject* observe(Recorder* self, PyObject* object) {
  Key key;
  bool complete = false;
  if (Py_TYPE(object) == self->tensor_type || PyType_IsSubtype(Py_TYPE(object), self->tensor_type)) {
    try {
      complete = fill(self, object, &key);
    } catch (...) {  // whatever Paddle throws for the state that a tensor is in: the Python observer copes with it
      complete = false;
    }
    if (PyErr_Occurred()) {
      if (!PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
      PyErr_Clear();
      complete = false;
    }
  }
  uint64_t hash = complete ? key.hash() : 0;
  if (complete) {
    PyObject* found = self->known->find(key, hash);
    if (found != nullptr) {
      Py_INCREF(found);
      return found;
    }
  }
  ++self->misses;
  PyObject* observation = call(self->read, object);
  if (observation != nullptr && complete) {
    try {
      self->known->insert(key, hash, observation);
    } catch (const std::exception&) {  // no memory: it is read again next time
    }
  }
  return observation;
}

// --- Recorder ---

int recorder_init(PyObject* object, PyObject* args, PyObject*) {
  auto self = reinterpret_cast<Recorder*>(object);
  PyObject *type, *read, *nothing;
  int places;
  Py_ssize_t capacity;
  if (!PyArg_ParseTuple(args, "O!OOpn", &PyType_Type, &type, &read, &nothing, &places, &capacity)) return -1;
  if (self->known != nullptr || capacity <= 0) {
    PyErr_SetString(PyExc_ValueError, "a recorder is made once, for some kinds of tensors");
    return -1;
  }
  PyGetSetDef* getters[2];
  const char* names[2] = {"stop_gradient", "persistable"};
  for (int i = 0; i < 2; ++i) {
    PyObject* descriptor = PyObject_GetAttrString(type, names[i]);
    if (descriptor == nullptr) return -1;
    bool known = Py_TYPE(descriptor) == &PyGetSetDescr_Type;
    getters[i] = known ? reinterpret_cast<PyGetSetDescrObject*>(descriptor)->d_getset : nullptr;
    Py_DECREF(descriptor);  // its definition is static, and the type is held
    if (!known) {
      PyErr_Format(PyExc_TypeError, "%s of this Paddle's tensors is no attribute in C", names[i]);
      return -1;
    }
  }
  self->known = new Known(static_cast<size_t>(capacity));
  self->stop_gradient = getters[0];
  self->persistable = getters[1];
  self->places = places != 0;
  Py_INCREF(type);
  self->tensor_type = reinterpret_cast<PyTypeObject*>(type);
  Py_INCREF(read);
  self->read = read;
  Py_INCREF(nothing);
  self->nothing = nothing;
  return 0;
}

int recorder_traverse(PyObject* object, visitproc visit, void* arg) {
  auto self = reinterpret_cast<Recorder*>(object);
  Py_VISIT(self->read);
  Py_VISIT(self->nothing);
  return self->known == nullptr ? 0 : self->known->traverse(visit, arg);
}

int recorder_clear(PyObject* object) {
  auto self = reinterpret_cast<Recorder*>(object);
  Py_CLEAR(self->read);
  Py_CLEAR(self->nothing);
  if (self->known != nullptr) self->known->clear();
  return 0;
}

void recorder_dealloc(PyObject* object) {
  auto self = reinterpret_cast<Recorder*>(object);
  PyObject_GC_UnTrack(object);
  recorder_clear(object);
  delete self->known;
  Py_CLEAR(self->tensor_type);
  Py_TYPE(object)->tp_free(object);
}

PyObject* recorder_read(PyObject* object, PyObject* tensor) {
  return observe(reinterpret_cast<Recorder*>(object), tensor);
}

PyObject* recorder_spent(PyObject* object, PyObject*) {
  auto self = reinterpret_cast<Recorder*>(object);
  long long spent = self->spent_ns;
  self->spent_ns = 0;
  return PyLong_FromLongLong(spent);
}

PyObject* recorder_status(PyObject* object, PyObject*) {
  auto self = reinterpret_cast<Recorder*>(object);
  return Py_BuildValue("nK", static_cast<Py_ssize_t>(self->known->count()), self->misses);
}

// --- Pack: a hook, with what it is given observed ---

struct Pack {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  Recorder* recorder;
  PyObject* hook;
  PyObject* observed;  // a list
  PyObject* fault;     // told of an exception of ours; answers whether to go on
  bool first;          // observe before the hook is called
  bool off;
};

// Note `argument`. False with an exception set, which is none of ours: KeyboardInterrupt, SystemExit.
bool note(Pack* self, PyObject* argument) {
  Recorder* recorder = self->recorder;
  unsigned long long misses = recorder->misses;
  bool timed = recorder->tick++ % kTimedEvery == 0;
  long long started = timed ? now_ns() : 0;
  PyObject* observation = observe(recorder, argument);
  bool failed = observation == nullptr || PyList_Append(self->observed, observation) < 0;
  Py_XDECREF(observation);
  if (timed) {
    // One that had to ask the Python observer stands for itself.
    recorder->spent_ns += (now_ns() - started) * (misses == recorder->misses ? kTimedEvery : 1);
  }
  if (!failed) return true;
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  // The slots after this one keep their places.
  if (PyList_Append(self->observed, recorder->nothing) < 0) PyErr_Clear();
  PyObject* answer = call(self->fault, value);
  if (answer == nullptr) PyErr_Clear();
  if (answer == Py_False) self->off = true;
  Py_XDECREF(answer);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return true;
}

PyObject* pack_call(PyObject* object, PyObject* const* args, size_t count, PyObject* names) {
  auto self = reinterpret_cast<Pack*>(object);
  bool noting = !self->off && PyVectorcall_NARGS(count) == 1;
  if (noting && self->first && !note(self, args[0])) return nullptr;
  PyObject* result = PyObject_Vectorcall(self->hook, args, count, names);
  if (result != nullptr && noting && !self->first && !note(self, args[0])) Py_CLEAR(result);
  return result;
}

int pack_traverse(PyObject* object, visitproc visit, void* arg) {
  auto self = reinterpret_cast<Pack*>(object);
  Py_VISIT(self->recorder);
  Py_VISIT(self->hook);
  Py_VISIT(self->observed);
  Py_VISIT(self->fault);
  return 0;
}

void pack_dealloc(PyObject* object) {
  auto self = reinterpret_cast<Pack*>(object);
  PyObject_GC_UnTrack(object);
  Py_CLEAR(self->recorder);
  Py_CLEAR(self->hook);
  Py_CLEAR(self->observed);
  Py_CLEAR(self->fault);
  Py_TYPE(object)->tp_free(object);
}

PyObject* pack_attribute(PyObject* object, void* name) {
  return PyObject_GetAttrString(reinterpret_cast<Pack*>(object)->hook, static_cast<const char*>(name));
}

PyGetSetDef pack_attributes[] = {
    {"__name__", pack_attribute, nullptr, "The hook's name.", const_cast<char*>("__name__")},
    {"__qualname__", pack_attribute, nullptr, "The hook's qualified name.", const_cast<char*>("__qualname__")},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyTypeObject pack_type = {PyVarObject_HEAD_INIT(nullptr, 0) "ctx_tracer_native.Pack", sizeof(Pack)};

PyObject* pack_new(PyObject* recorder, PyObject* args, bool first) {
  PyObject *hook, *observed, *fault;
  if (!PyArg_ParseTuple(args, "OO!O", &hook, &PyList_Type, &observed, &fault)) return nullptr;
  auto pack = reinterpret_cast<Pack*>(pack_type.tp_alloc(&pack_type, 0));
  if (pack == nullptr) return nullptr;
  pack->vectorcall = pack_call;
  Py_INCREF(recorder);
  pack->recorder = reinterpret_cast<Recorder*>(recorder);
  Py_INCREF(hook);
  pack->hook = hook;
  Py_INCREF(observed);
  pack->observed = observed;
  Py_INCREF(fault);
  pack->fault = fault;
  pack->first = first;
  return reinterpret_cast<PyObject*>(pack);
}

PyObject* recorder_before(PyObject* object, PyObject* args) { return pack_new(object, args, true); }
PyObject* recorder_after(PyObject* object, PyObject* args) { return pack_new(object, args, false); }

PyMethodDef recorder_methods[] = {
    {"read", recorder_read, METH_O, "read(tensor): its Observation."},
    {"before", recorder_before, METH_VARARGS,
     "before(hook, observed, fault): the hook, its argument observed first and appended to the list `observed`.\n"
     "fault(exception) is told what goes wrong in that and answers whether to go on."},
    {"after", recorder_after, METH_VARARGS, "after(hook, observed, fault): the same, once the hook has returned."},
    {"spent", recorder_spent, METH_NOARGS, "Nanoseconds spent on observing by hooks since the last call, about."},
    {"status", recorder_status, METH_NOARGS, "(kinds of tensors known, readings by the Python observer)"},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject recorder_type = {PyVarObject_HEAD_INIT(nullptr, 0) "ctx_tracer_native.Recorder", sizeof(Recorder)};

PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, "ctx_tracer_native", "Observations read in C++.", -1};

}  // namespace

PyMODINIT_FUNC PyInit_ctx_tracer_native() {
  recorder_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
  recorder_type.tp_doc = "Recorder(tensor_type, read, nothing, places, capacity)";
  recorder_type.tp_new = PyType_GenericNew;
  recorder_type.tp_init = recorder_init;
  recorder_type.tp_dealloc = recorder_dealloc;
  recorder_type.tp_traverse = recorder_traverse;
  recorder_type.tp_clear = recorder_clear;
  recorder_type.tp_methods = recorder_methods;
  pack_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
  pack_type.tp_dealloc = pack_dealloc;
  pack_type.tp_traverse = pack_traverse;
  pack_type.tp_call = PyVectorcall_Call;
  pack_type.tp_vectorcall_offset = offsetof(Pack, vectorcall);
  pack_type.tp_getset = pack_attributes;
  if (PyType_Ready(&recorder_type) < 0 || PyType_Ready(&pack_type) < 0) return nullptr;
  PyObject* module = PyModule_Create(&module_definition);
  if (module == nullptr) return nullptr;
  Py_INCREF(&recorder_type);
  if (PyModule_AddObject(module, "Recorder", reinterpret_cast<PyObject*>(&recorder_type)) < 0) {
    Py_DECREF(&recorder_type);
    Py_CLEAR(module);
  }
  return module;
}
