/*
 * Loaded into a running Python process by the `dlopen` that pyinjector makes one of its threads call.
 *
 * The constructor only starts a thread, so the thread that was borrowed goes on at once. The new thread waits for the
 * interpreter like any other, then runs `agent.py`, which lies beside this library, in a namespace of its own:
 * nothing is seen in `__main__`, and what goes wrong is nobody's exception. No header of Python is needed, so one
 * library fits every version: its functions are looked up by name, and have been there since Python 3.2.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { FILE_INPUT = 257 }; /* Py_file_input */

static const char boot[] =
    "try:\n"
    "    with open(__file__) as source:\n"
    "        exec(compile(source.read(), __file__, 'exec'))\n"
    "except OSError:\n" /* whoever attached has given up and taken the file away */
    "    pass\n";

static void run_agent(const char *path) {
    int (*is_initialized)(void) = dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    int (*ensure)(void) = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    void (*release)(int) = dlsym(RTLD_DEFAULT, "PyGILState_Release");
    void *(*new_dict)(void) = dlsym(RTLD_DEFAULT, "PyDict_New");
    int (*set_item)(void *, const char *, void *) = dlsym(RTLD_DEFAULT, "PyDict_SetItemString");
    void *(*builtins)(void) = dlsym(RTLD_DEFAULT, "PyEval_GetBuiltins");
    void *(*decode)(const char *) = dlsym(RTLD_DEFAULT, "PyUnicode_DecodeFSDefault");
    void *(*run)(const char *, int, void *, void *) = dlsym(RTLD_DEFAULT, "PyRun_String");
    void (*unref)(void *) = dlsym(RTLD_DEFAULT, "Py_DecRef");
    void (*clear_error)(void) = dlsym(RTLD_DEFAULT, "PyErr_Clear");
    if (!is_initialized || !ensure || !release || !new_dict || !set_item || !builtins || !decode || !run || !unref ||
        !clear_error || !is_initialized())
        return;
    int state = ensure();
    void *globals = new_dict(), *name = decode("ctx_tracer_agent"), *file = decode(path);
    if (globals && name && file && set_item(globals, "__builtins__", builtins()) == 0 &&
        set_item(globals, "__name__", name) == 0 && set_item(globals, "__file__", file) == 0)
        unref(run(boot, FILE_INPUT, globals, globals));
    unref(file); /* Py_DecRef takes NULL */
    unref(name);
    unref(globals);
    clear_error();
    release(state);
}

static void *start(void *unused) {
    (void)unused;
    Dl_info here;
    char path[4096];
    if (dladdr((void *)(size_t)start, &here) && here.dli_fname) {
        size_t length = strlen(here.dli_fname);
        if (length > 3 && length < sizeof path) {
            memcpy(path, here.dli_fname, length + 1);
            strcpy(path + length - 3, ".py"); /* agent.so, agent.py */
            run_agent(path);
        }
    }
    return NULL;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits it: the program's signals are not ours */
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_create(&thread, &attributes, start, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
