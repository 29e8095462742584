"""The table of wrong calls: `calls/*.txt`, and the rows that are made from it.

A line that begins with a function's name is a right call of it:

    cuMemcpyHtoD_v2 memory, host, bytes

Each argument is an expression over the names of `state.py`. It makes a row `cuMemcpyHtoD_v2.right`,
and for each argument that is listed in `WRONG` one row for each wrong value in its place, such as
`cuMemcpyHtoD_v2.1.freed`, where 1 is the first argument. A line that begins with `+` is one row:
its name, the function, the arguments, and behind a semicolon what is made last before the call:

    +no-context-allocate cuMemAlloc_v2 out, 64 ; no_context

`!` before either says that its rows get a process of their own: they break the context, or are
likely to break a library that does not check handles.
"""

import ast
import dataclasses
import pathlib

CALLS = pathlib.Path(__file__).resolve().parent / "calls"


def handle(*extra, null=True):
    values = {"null": "0"} if null else {}
    return {**values, "forged": "forged", **dict(extra)}


def destroyed(kind, null=True):
    return handle(("destroyed", f"destroyed_{kind}"), null=null)


def node(kind):
    foreign = {} if kind == "empty_vertex" else {"of-other-kind": "second_vertex"}
    return {**destroyed("vertex"), **foreign}


#: For an argument of a right call: the wrong values, by the name that they get.
WRONG = {
    "out": {"null": "0"},
    "second_out": {"null": "0"},
    "third_out": {"null": "0"},
    "flags": {"unknown": "1 << 20", "all": "0xFFFFFFFF"},
    "device": {"negative": "-1", "beyond": "99"},
    "ordinal": {"negative": "-1", "beyond": "99"},
    "context": destroyed("context"),
    "other_context": destroyed("context"),
    "new_context": destroyed("context"),
    "stream": destroyed("stream", null=False),
    "new_stream": destroyed("stream"),
    "capturing_relaxed": destroyed("stream"),
    "event": destroyed("event"),
    "new_event": destroyed("event"),
    "shareable_event": destroyed("event"),
    "module": destroyed("module"),
    "new_module": destroyed("module"),
    "function": destroyed("function"),
    "library": destroyed("library"),
    "new_library": destroyed("library"),
    "kernel": destroyed("kernel"),
    "new_linker": destroyed("linker"),
    "linker": destroyed("linker"),
    "pool": destroyed("pool"),
    "new_pool": destroyed("pool"),
    "physical_memory": destroyed("physical_memory"),
    "new_physical_memory": destroyed("physical_memory"),
    "graph": destroyed("graph"),
    "new_graph": destroyed("graph"),
    "child_graph": destroyed("graph"),
    "edged_graph": destroyed("graph"),
    "clone": destroyed("graph"),
    "executable": destroyed("executable"),
    "new_executable": destroyed("executable"),
    **{f"{kind}_vertex": node(f"{kind}_vertex") for kind in
       ["kernel", "copy", "fill", "host", "batch", "empty", "record", "wait", "child", "new"]},
    "memory": {"null": "0", "freed": "freed_memory", "host": "host", "nowhere": "1 << 46",
               "small": "16"},
    "second_memory": {"null": "0", "freed": "freed_memory", "nowhere": "1 << 46"},
    "new_memory": {"null": "0", "freed": "freed_memory", "host": "host"},
    "pooled": {"null": "0", "freed": "freed_pooled", "host": "host"},
    "managed": {"null": "0", "freed": "freed_memory", "host": "host"},
    "new_managed": {"null": "0", "freed": "freed_memory", "host": "host"},
    "pinned": {"null": "0", "freed": "freed_pinned", "pageable": "host", "device": "memory"},
    "new_pinned": {"null": "0", "freed": "freed_pinned"},
    "pages": {"null": "0"},
    "registered": {"null": "0", "pageable": "pages", "device": "memory"},
    "host": {"null": "0"},
    "bytes": {"zero": "0", "beyond": "beyond", "huge": "1 << 50"},
    "reserved": {"null": "0", "freed": "freed_reserved", "host": "host", "device": "memory"},
    "mapping": {"null": "0", "unmapped": "reserved", "host": "host", "device": "memory"},
    "accessible": {"null": "0", "unmapped": "reserved", "host": "host", "device": "memory"},
    "limit": {"unknown": "99", "negative": "-1"},
    "cache": {"unknown": "99"},
    "banks": {"unknown": "99"},
    "affinity": {"unknown": "99"},
    "device_attribute": {"zero": "0", "unknown": "5000", "negative": "-1"},
    "function_attribute": {"unknown": "99"},
    "pool_attribute": {"unknown": "99"},
    "pointer_attribute": {"unknown": "99"},
    "peer_attribute": {"zero": "0", "unknown": "99"},
    "stream_attribute": {"unknown": "99"},
    "range_attribute": {"unknown": "99"},
    "advice": {"zero": "0", "unknown": "99"},
    "granularity_option": {"unknown": "99"},
    "input_kind": {"unknown": "99"},
    "callback": {"null": "0"},
    "stream_callback": {"null": "0"},
    "image": {"null": "0"},
    "path": {"null": "0"},
    "function_name": {"null": "0", "unknown": "other_name"},
    "variable_name": {"null": "0", "unknown": "other_name"},
    "api_name": {"null": "0"},
    "bus_text": {"null": "0"},
    "access()": {"null": "0"},
    "location()": {"null": "0"},
    "physical()": {"null": "0"},
    "pool_of()": {"null": "0"},
    "instantiation()": {"null": "0"},
    "launch(stream)": {"null": "0"},
    "parameters": {"null": "0"},
    "kernel_node_parameters": {"null": "0"},
    "copy_parameters": {"null": "0"},
    "fill_parameters": {"null": "0"},
    "host_parameters": {"null": "0"},
    "batch_parameters": {"null": "0"},
    "copy_2d(memory, host)": {"null": "0"},
    "copy_3d(memory, host)": {"null": "0"},
    "operation(memory)": {"null": "0"},
    "array(0)": {"null": "0"},
    "array(memory)": {"null": "0"},
    "array(second_memory)": {"null": "0"},
    "array(bytes)": {"null": "0"},
    "words(pointer_attribute)": {"null": "0"},
    "words(capture_mode)": {"null": "0", "unknown": "words(77)"},
    "index": {"beyond": "50"},
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One call."""

    name: str
    function: str
    arguments: tuple
    #: What is made last before the call, or nothing.
    last: str
    #: Whether it gets a process of its own, if the library does not check handles or in any case.
    is_risky: bool
    is_alone: bool


def split(text, where):
    """Returns the expressions of an argument list."""
    source = f"f({text})"
    try:
        call = ast.parse(source, mode="eval").body
    except SyntaxError as error:
        raise SystemExit(f"error: {where}: {error.msg}: {text}")
    return tuple(ast.get_source_segment(source, argument) for argument in call.args)


def is_risky(arguments):
    text = " ".join(arguments)
    return "forged" in text.replace("forged_handle", "") or "destroyed" in text


def rows_of_line(line, where):
    is_alone = line.startswith("!")
    line, _, last = line.removeprefix("!").partition(" ; ")
    if line.startswith("+"):
        name, function, *rest = line[1:].split(" ", 2)
        arguments = split(rest[0] if rest else "", where)
        chapter = where.split(".")[0]
        yield Row(f"{chapter}.{name}", function, arguments, last, is_risky(arguments), is_alone)
        return
    function, _, text = line.partition(" ")
    right = split(text, where)
    yield Row(f"{function}.right", function, right, last, False, is_alone)
    for place, argument in enumerate(right):
        for word, value in WRONG.get(argument, {}).items():
            wrong = (*right[:place], value, *right[place + 1:])
            name = f"{function}.{place + 1}.{word}"
            yield Row(name, function, wrong, last, is_risky(wrong), is_alone)


def all_rows():
    """Returns all rows, in the order of the table."""
    rows = {}
    for file in sorted(CALLS.glob("*.txt")):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if not line or line.startswith("#"):
                continue
            for row in rows_of_line(line, f"{file.name}:{number}"):
                if row.name in rows:
                    raise SystemExit(f"error: {file.name}:{number}: {row.name} is there twice")
                rows[row.name] = row
    return list(rows.values())
