"""Wrong sources.  Each has a mark, ¶, right before the place that the message must name, and a piece of the message."""

from __future__ import annotations

from tests.fabric.csl.sources import layout_of, running

DSDS = """var a: [8]f32;
var b: [8]i16;
const fa = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> a[i] });
const ib = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> b[i] });
const out = @get_dsd(fabout_dsd, .{ .extent = 8, .fabric_color = @get_color(1), .output_queue = @get_output_queue(2) });
const in_ = @get_dsd(fabin_dsd, .{ .extent = 8, .fabric_color = @get_color(2), .input_queue = @get_input_queue(2) });"""

CONST = "const x = {};\ncomptime {{ _ = x; }}\n"


def value(expression: str, *before: str) -> str:
    """Return a program that needs a global constant."""
    return "\n".join([*before, CONST.format(expression)])


SYNTAX = {
    "missing semicolon": ("const a = 1¶\nconst b = 2;\n", "';' is missing"),
    "missing semicolon in a block": ("fn f() void {\n  x = 3¶\n}\n", "';' is missing"),
    "open brace": ("fn f() void ¶{\n  x = 1;\n", "still open"),
    "open parenthesis": ("const a = (1 + 2¶;\n", "expected ')'"),
    "stray brace": ("const a = 1;\n¶}\n", "does not fit"),
    "number for a name": ("const ¶3 = 4;\n", "expected a name"),
    "statement at the top": ("¶x = 4;\n", "does not fit"),
    "open string": ('const s = ¶"abc;\n', "does not end"),
    "open character": ("const c = ¶'ab';\n", "does not end"),
    "block comment": ("¶/* no */\n", "block comments"),
    "field twice": ("const s = .{ .a = 1, .a = ¶2 };\n", "given twice"),
    "extents and names": ("const t = ¶|i, j|{4} -> a[i];\n", "2 names, but 1 extents"),
    "no result type": ("fn f() ¶{ }\n", "does not fit"),
    "no capture": ("layout { for (x) ¶i { } }\n", "expected '|'"),
    "value missing": ("const a = ¶;\n", "does not fit"),
    "bad escape": ('const s = ¶"a\\q";\n', "escape"),
    "two characters": ("const a = b¶ c;\n", "';' is missing"),
    "parameter twice": ("fn f(a: i16, ¶a: i16) void {}\n", "parameter 'a' is declared twice"),
    "field of a type twice": ("const S = struct { a: i16, a: ¶f32 };\n", "has the field 'a' twice"),
    "element and index of one name": ("fn f() void { ¶for (@range(i16, 3)) |i, i| { } }\n", "both called 'i'"),
    "function without a body": ("¶fn f() void;\n", "'f' has no body"),
    "function in a function": ("fn f() void {\n  fn ¶g() void { }\n}\n", "does not fit"),
    "type before the name": ("fn f() void {\n  int ¶x = 3;\n}\n", "does not fit"),
    "bad hexadecimal": ('const s = ¶"\\xg1";\n', "hexadecimal"),
}

NAMES = {
    "unknown name": (value("¶y + 1"), "'y' is not known"),
    "misspelt name": (value("¶lenght", "const length = 3;"), "not known"),
    "unknown builtin": (value("¶@get_colour(3)"), "no builtin @get_colour"),
    "declared twice": ("const a = 1;\n¶const a = 2;\n", "declared twice"),
    "local twice": (running("var i: i16 = 0;\n¶var i: i16 = 1;"), "declared twice"),
    "no value for a number": (
        running("const v: i16 = ¶switch (w) { 1 => 2, 2 => 3 };", "var w: i16;"),
        "has no 'else'",
    ),
    "no value for a member": (
        running("const v: i16 = ¶switch (w) { E.a => 2 };", "const E = enum(u16) { a, b, c };", "var w: E = E.a;"),
        "gives no value for b, c",
    ),
    "two fields of a union": (
        running("var v = ¶U{ .a = 1, .b = 2 };", "const U = union { a: i16, b: u16 };"),
        "one field at a time, not 2",
    ),
    "unknown label of a value": (running("const v: i16 = one: { ¶break :two 1; };"), "has the label 'two'"),
    "unknown at run time": (running("var i: i16 = ¶n;"), "'n' is not known"),
    "unknown field": (value("¶s.b", "const s = .{ .a = 1 };"), "no field 'b'"),
    "unknown member": (value("¶E.C", "const E = enum(u16) { A, B };"), "no member 'C'"),
    "unknown in a module": (value("¶m.nothing", 'const m = @import_module("<time>");'), "has no 'nothing'"),
    "no such module": (value('@import_module(¶"<nowhere>")'), "no module <nowhere>"),
    "no such file": (value('@import_module(¶"nowhere.csl")'), "no file 'nowhere.csl'"),
    "param without value": ("¶param n: u16;\nconst x = n;\ncomptime { _ = x; }\n", "param 'n' has no value"),
    "depends on itself": ("const a = b;\nconst b = ¶a;\ncomptime { _ = a; }\n", "depends on itself"),
    "no type, no value": ("¶var a;\ncomptime { _ = &a; }\n", "neither type nor value"),
}

TYPES = {
    "float for int": (value("x2", "const x2: i16 = ¶1.5;"), "comptime_float"),
    "too large": (value("x2", "const x2: i16 = ¶40000;"), "does not fit into i16"),
    "negative for unsigned": (value("x2", "const x2: u16 = ¶-1;"), "does not fit into u16"),
    "bool for int": (value("x2", "const x2: i16 = ¶true;"), "has type bool"),
    "int for color": (value("x2", "const x2: color = ¶3;"), "color is needed"),
    "color for int": (value("x2", "const x2: u16 = ¶@get_color(3);"), "has type color"),
    "string for int": (value("x2", 'const x2: u16 = ¶"3";'), "comptime_string"),
    "no type": (value("x2", "const x2: ¶3 = 3;"), "a type is needed"),
    "color plus": (value("¶@get_color(1) + 1"), "does not take color"),
    "not of a number": (value("¶!3"), "'!' needs a bool"),
    "complement of unbounded": (value("¶~3"), "'~' needs an integer"),
    "minus of a bool": (value("¶-true"), "'-' needs a number"),
    "remainder of floats": (value("¶1.5 % 2.0"), "works on integers"),
    "and of integers": (value("¶1 and 2"), "must be a bool"),
    "or's right side": (value("false or ¶2"), "'or' needs a bool"),
    "division by zero": (value("¶4 / 0"), "division by zero"),
    "remainder by zero": (value("¶@as(i16, 4) % @as(i16, 0)"), "division by zero"),
    "shift too far": (value("¶@as(u16, 1) << 16"), "has 16 bits"),
    "negative shift": (value("¶1 << -1"), "negative"),
    "condition is a number": (value("if (¶1) 2 else 3"), "must be a bool"),
    "mixed array": (value("[2]i16{ 1, ¶2.5 }"), "comptime_float"),
    "array too short": (value("¶[3]i16{ 1, 2 }"), "2 elements for [3]i16"),
    "index outside": (value("a[¶3]", "const a = [3]i16{ 1, 2, 3 };"), "index 3 is outside"),
    "rank of an index": (value("¶a[1, 1]", "const a = [3]i16{ 1, 2, 3 };"), "2 subscripts"),
    "negative size": (value("@zeros([¶-1]i16)"), "size -1"),
    "array of arrays": (value("@zeros(¶[2][2]i16)"), "no arrays of arrays"),
    "zeros of bool": (value("¶@zeros([2]bool)"), "arrays of numbers"),
    "bitcast of widths": (value("¶@bitcast(u32, @as(u16, 1))"), "16 bits"),
    "as of a string": (value('@as(u16, ¶"1")'), "u16 is needed"),
    "as outside": (value("@as(u8, ¶256)"), "does not fit into u8"),
    "enum number": (value("@as(E, ¶9)", "const E = enum(u16) { A, B };"), "no member with the number 9"),
    "enum twice": (value("¶enum(u16) { A, A }"), "'A' twice"),
    "enum's base": (value("¶enum(f16) { A }"), "base of an enum"),
    "fields in both": (value("¶@concat_structs(.{ .a = 1 }, .{ .a = 2 })"), "both structs"),
    "runtime widening": (running("var s: i16 = 1;\nvar t: i16 = ¶w;\n_ = t;\n_ = s;", "var w: i32 = 1;"), "i32"),
    "runtime operands": (running("_ = ¶w + h;", "var w: i16 = 1;", "var h: u16 = 1;"), "types i16 and u16"),
    "runtime condition": (running("if (¶w) { }", "var w: i16 = 1;"), "must be a bool"),
    "runtime shift of literal": (running("_ = ¶1 << w;", "var w: u16 = 1;"), "fixed width"),
    "runtime division": (running("_ = ¶w / 0;", "var w: i16 = 1;"), "division by zero"),
    "runtime index": (running("_ = a[¶b];", "var a: [4]i16;", "var b: f32;"), "index must be an integer"),
    "known index outside": (running("a[¶4] = 1;", "var a: [4]i16;"), "outside"),
    "index of a number": (running("_ = ¶a[0];", "var a: i16;"), "no elements"),
    "array has no field": (running("_ = ¶a.b;", "var a: [4]i16;"), "no field 'b'"),
    "dereference": (running("_ = ¶a.*;", "var a: i16 = 0;"), "needs a pointer"),
    "many-pointer star": (running("_ = ¶p.*;", "var a: [4]i16;", "var p: [*]i16 = &a;"), "is indexed"),
    "pointer to another type": ("var a: [4]i16;\nvar p: [*]f32 = ¶&a;\ncomptime { _ = &p; }\n", "[*]f32 is needed"),
    "address of a value": (running("_ = ¶&(1 + 2);"), "has an address"),
    "comptime var kept": ("¶var t = i16;\ncomptime { _ = &t; }\n", "compile time only"),
}

STATEMENTS = {
    "const changed": (running("const c: i16 = 1;\n¶c = 2;"), "is a const"),
    "global const changed": (running("¶c = 2;", "const c: i16 = 1;"), "'c' is a const; it cannot change"),
    "param changed": (running("¶n += 2;", "param n: i16 = 1;"), "'n' is a param; it cannot change"),
    "function changed": (running("¶f = 2;", "fn f() void {}"), "'f' is not a variable"),
    "parameter changed": ("fn f(a: i16) void { ¶a = 1; }\n" + running("f(1);"), "is a const"),
    "value not used": (running("¶w + 1;", "var w: i16;"), "not used"),
    "address of a descriptor": (
        "var s: [4]i16; var d = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> s[i] });\n"
        "fn move(p: *mem1d_dsd) void { p.* = @increment_dsd_offset(p.*, 1, i16); }\n" + running("move(&¶d);"),
        "has no address",
    ),
    "break outside": (running("¶break;"), "outside of a loop"),
    "continue outside": (running("¶continue;"), "outside of a loop"),
    "unknown label": (running("while (w) { ¶break :far; }", "var w: bool;"), "no loop around"),
    "return with a value": (running("return ¶3;"), "result is void"),
    "return without": ("fn f() i16 { ¶return; }\n" + running("_ = f();"), "must be returned"),
    "end without return": ("¶fn f() i16 { }\n" + running("_ = f();"), "without returning"),
    "wrong result": ("fn f() i16 { return ¶1.5; }\n" + running("_ = f();"), "i16 is needed"),
    "too few arguments": ("fn f(a: i16) void { }\n" + running("¶f();"), "takes 1 argument, not 0"),
    "wrong argument": ("fn f(a: i16) void { }\n" + running("f(¶1.5);"), "argument 'a'"),
    "call of a number": (running("¶w();", "var w: i16;"), "cannot be called"),
    "call of a task": ("task t() void { }\n" + running("¶t();"), "tasks are started"),
    "loop over a number": (running("for (¶w) |i| { _ = i; }", "var w: i16;"), "runs over"),
    "step of zero": (running("for (¶@range(i16, 0, 4, 0)) |i| { _ = i; }"), "step of the range is 0"),
    "case twice": (running("switch (w) { 1 => { }, ¶1 => { }, else => { } }", "var w: i16;"), "twice"),
    "case of another type": (running("switch (w) { ¶1.5 => { }, else => { } }", "var w: i16;"), "the case"),
    "enum not covered": (
        "const E = enum(u16) { A, B };\nvar e: E = E.A;\n" + running("¶switch (e) { E.A => { } }"),
        "no branch for B",
    ),
    "recursion": (
        "fn f(n: u64) u64 { if (n > 0) { return 1 + ¶f(n - 1); } return 0; }\n" + running("_ = f(w);", "var w: u64;"),
        "calls itself again",
    ),
    "endless at compile time": ("fn f(n: i16) i16 { return ¶f(n + 1); }\n" + value("f(0)"), "nest deeper"),
    "no result at compile time": (
        "fn f(b: bool) i16 { if (b) { return 1; } }\n" + value("¶f(false)"),
        "without returning",
    ),
    "run-time value as size": (
        running("const n = @zeros([¶w]i16);\n_ = n;", "var w: i16;"),
        "not known at compile time",
    ),
    "assertion": ('comptime { ¶@comptime_assert(1 > 2, "why"); }\n', "assertion failed: why"),
    "inline assembly": (running('_ = ¶asm("nop");'), "inline assembly"),
}

MACHINE = {
    "color out of range": (value("@get_color(¶64)"), "0 to 63"),
    "color that no router has": (value("@get_data_task_id(¶@get_color(24))"), "0 to 23"),
    "task out of range": (value("@get_local_task_id(¶31)"), "0 to 30"),
    "input queue out of range": (value("@get_input_queue(¶8)"), "0 to 7"),
    "output queue out of range": (value("@get_output_queue(¶6)"), "0 to 5"),
    "control task out of range": (value("@get_control_task_id(¶64)"), "0 to 63"),
    "data task of a number": (value("@get_data_task_id(¶3)"), "takes a color"),
    "two tasks on an id": (
        "task a() void { }\ntask b() void { }\ncomptime { @bind_local_task(a, @get_local_task_id(9));\n"
        "¶@bind_local_task(b, @get_local_task_id(9)); }\n",
        "two tasks",
    ),
    "function bound": (
        "fn a() void { }\ncomptime { @bind_local_task(¶a, @get_local_task_id(9)); }\n",
        "a task is needed",
    ),
    "id of another kind": (
        "task a() void { }\ncomptime { @bind_local_task(a, ¶@get_control_task_id(9)); }\n",
        "takes a local_task_id",
    ),
    "local task with parameters": (
        "task a(x: u16) void { }\ncomptime { @bind_local_task(¶a, @get_local_task_id(9)); }\n",
        "no parameters",
    ),
    "data task with three": (
        "task a(x: u16, y: u16, z: u16) void { }\n"
        "comptime { @bind_data_task(¶a, @get_data_task_id(@get_color(9))); }\n",
        "one parameter of 16 or 32 bits, or two",
    ),
    "activate a color": (running("¶@activate(@get_color(3));"), "no task is bound to the id 3"),
    "block a number": (running("@block(¶3);"), "@block takes"),
    "queue twice": (
        "const q = @get_input_queue(2);\ncomptime { @initialize_queue(q, .{ .color = @get_color(1) });\n"
        "¶@initialize_queue(q, .{ .color = @get_color(2) }); }\n",
        "initialized twice",
    ),
    "field of a queue": (
        "comptime { @initialize_queue(@get_input_queue(2), ¶.{ .colour = @get_color(1) }); }\n",
        "no field 'colour'",
    ),
    "priority of a queue": (
        "comptime { @initialize_queue(@get_input_queue(2), ¶.{ .priority = .{ .highest = true } }); }\n",
        "no field 'highest'",
    ),
    "setup at run time": (
        running("¶@initialize_queue(@get_input_queue(2), .{ .color = @get_color(1) });"),
        "comptime block",
    ),
    "layout builtin in a program": ("comptime { ¶@set_rectangle(1, 1); }\n", "in a layout block"),
    "run-time builtin at compile time": ("comptime { ¶@random16(); }\n", "in code that runs on a PE"),
    "WSE-3 only": (running("¶@queue_flush(@get_output_queue(2));"), "WSE-3 only"),
    "raw configuration": (running("¶@set_config(1, 2);"), "tile_config"),
    "arguments of a builtin": (value("¶@get_color()"), "takes 1 argument, not 0"),
    "no architecture": (value('@is_arch(¶"wse9")'), "no architecture"),
}

INDEXED = "var a: [8]f32; var ab: [3, 3]i16; const two = .{ 1, 2 }; fn nothing() void { }\n"
VECTORS = {
    "no kind of DSD": (value("@get_dsd(¶i16, .{})"), "no kind of DSD"),
    "unknown field of a DSD": (
        value("@get_dsd(fabin_dsd, .{ .extent = 1, .colour = ¶@get_color(1) })"),
        "no field 'colour'",
    ),
    "extent missing": (value("@get_dsd(fabin_dsd, ¶.{ .fabric_color = @get_color(1) })"), "needs the field 'extent'"),
    "extent too large": (
        value("@get_dsd(fabin_dsd, .{ .fabric_color = @get_color(1), .extent = ¶70000 })"),
        "does not fit into u16",
    ),
    "queue of the wrong kind": (
        value("@get_dsd(fabin_dsd, .{ .extent = 1, .input_queue = ¶@get_output_queue(1) })"),
        "input_queue is needed",
    ),
    "two dimensions in mem1d": (
        value("@get_dsd(mem1d_dsd, ¶.{ .tensor_access = |i, j|{2, 2} -> m[i, j] })", "var m: [2, 2]f32;"),
        "one dimension",
    ),
    "access and extent": (
        value("@get_dsd(mem1d_dsd, ¶.{ .tensor_access = |i|{2} -> m[i], .extent = 2 })", "var m: [2]f32;"),
        "exclude",
    ),
    "subscripts of an access": (
        value("@get_dsd(mem1d_dsd, .{ .tensor_access = ¶|i|{2} -> m[i] })", "var m: [2, 2]f32;"),
        "1 subscripts",
    ),
    "not affine": (
        value("@get_dsd(mem1d_dsd, .{ .tensor_access = ¶|i|{2} -> m[i * i] })", "var m: [4]f32;"),
        "not affine",
    ),
    "access to a number": (
        value("@get_dsd(mem1d_dsd, .{ .tensor_access = |i|{2} -> ¶m[i] })", "var m: f32;"),
        "walks over an array",
    ),
    "write to a fabin": (running("@fmovs(¶in_, fa);", DSDS), "cannot write to a fabin_dsd"),
    "read a fabout": (running("@fmovs(fa, ¶out);", DSDS), "cannot read a fabout_dsd"),
    "scalar of the wrong type": (running("@fadds(fa, fa, ¶w);", DSDS, "var w: i16;"), "takes an f32"),
    "float for integers": (running("@add16(ib, ib, ¶1.5);", DSDS), "16-bit integer"),
    "array for a DSD": (running("@fmovs(fa, ¶a);", DSDS), "not [8]f32"),
    "destination a number": (running("@fmovs(¶w, fa);", DSDS, "var w: f32;"), "must be a DSD or DSR"),
    "vector for the scalar": (running("@fmacs(fa, fa, fa, ¶fa);", DSDS), "must be a number"),
    "pointer to another size": (running("@fmovs(¶&w, fa);", DSDS, "var w: i16;"), "not a i16"),
    "no vector": (running("¶@fmovs(&w, 1.0);", DSDS, "var w: f32;"), "needs a DSD or DSR"),
    "async on memory": (running("¶@fmovs(fa, fa, .{ .async = true });", DSDS), "asynchronous operation needs"),
    "unknown option": (running("@fmovs(out, fa, .{ .asynchronous = ¶true });", DSDS), "no option"),
    "both ends": (
        running(
            "@fmovs(out, fa, ¶.{ .async = true, .activate = me, .unblock = me });",
            DSDS,
            "const me = @get_local_task_id(8);",
        ),
        "not both",
    ),
    "activate a color by option": (
        running("¶@fmovs(out, fa, .{ .async = true, .activate = @get_color(3) });", DSDS),
        "no task has the id 3",
    ),
    "too few operands": (running("¶@fadds(fa, fa);", DSDS), "takes 3 to 4 arguments"),
    "length of a mem4d": (
        running(
            "_ = @set_dsd_length(¶m4, 3);",
            "var m: [2, 2]f32;",
            "const m4 = @get_dsd(mem4d_dsd, .{ .tensor_access = |i, j|{2, 2} -> m[i, j] });",
        ),
        "@set_dsd_length takes",
    ),
    "offset without a type": (running("_ = @increment_dsd_offset(fa, 1, ¶2);", DSDS), "a type is needed"),
    "map without a function": (running("@map(¶fa, fa);", DSDS), "takes a function first"),
    "map with too few": (
        "fn twice(x: f32) f32 { return x + x; }\n" + running("¶@map(twice, fa);", DSDS),
        "takes 2 operands, not 1",
    ),
    "no such DSR": (value("@get_dsr(dsr_dest, ¶16)"), "no dsr_dest 16"),
    **{
        f"mem4d with {fields}": (
            running(f"_ = @get_dsd(mem4d_dsd, .{{ .base_address = &m, {fields} }});", "var m: [8]f32; var n: u16;"),
            message,
        )
        for fields, message in (
            (".extent = ¶.{ n, 2 }", "must be known at compile time"),
            (".extent = .{ 2, 2 }, .stride = ¶.{ 1, n }", "must be known at compile time"),
            (".extent = ¶.{ 2.5, 2 }", "must be integers, not comptime_float"),
            (".extent = ¶.{ -1, 2 }", "an extent of -1"),
            (".extent = ¶.{ 1, 1, 1, 1, 1 }", "one to four integers"),
            (".extent = ¶.{}", "one to four integers"),
            (".extent = ¶3", "must be a tuple"),
        )
    },
    "strides for other dimensions": (
        value("@get_dsd(mem4d_dsd, ¶.{ .base_address = &m, .extent = .{ 2, 2 }, .stride = .{1} })", "var m: [8]f32;"),
        "as many strides, not 1",
    ),
    "no such module": ('const t = @import_module(¶"<tsc>");\ncomptime { _ = t; }\n', "there is no module <tsc>"),
    **{
        f"module <{name}>": (f'const t = @import_module(¶"<{name}>");\ncomptime {{ _ = t; }}\n', "is not modelled")
        for name in ("malloc", "message_passing", "string", "types", "data_utils", "timer")
    },
    "param of a library": (
        'const d = @import_module(¶"<debug>", .{ .key = "k" });\n' + running("d.trace_u16(1);"),
        "the param 'buffer_size' of <debug>",
    ),
    "library function at compile time": (
        'const m = @import_module("<math>");\nconst x = ¶m.sqrt("four");\ncomptime { _ = x; }\n',
        "comptime_string",
    ),
    "parts that run in a global": (
        "const S = struct { a: i16 }; var k: i16;\nvar s = ¶[1]S{ .{ .a = k } };\n" + running("s[0].a = 1;"),
        "not known at compile time",
    ),
    **{
        f"a {kind} through a pointer": (
            f"const S = struct {{ a: i16 }};\nvar v: {kind};\nvar p: *const fn({kind})void = &f;\n"
            + f"fn f(x: {kind}) void {{ }}\n"
            + running("¶p(v);"),
            "is not called through a pointer",
        )
        for kind in ("[3]i16", "S", "u64")
    },
    "an array in a circle of calls": (
        "var v: [2]i16; fn f(x: [2]i16, n: i16) i16 { if (n == 0) { return x[0]; } return ¶f(x, n - 1); }\n"
        + running("_ = f(v, 3);"),
        "has a [2]i16",
    ),
    "size of its own array": (
        "fn f(v: [¶f]i16) i16 { return v[0]; }\n" + running("_ = f;"),
        "not what this is a part of",
    ),
    "task of its own type": (
        "task t(¶t) void { }\ncomptime { @bind_local_task(t, @get_local_task_id(9)); }\n",
        "a type is needed",
    ),
    **{
        f"{when} {text}": (make(text), message)
        for text, message in (
            ("_ = &a[¶nothing];", "an index must be an integer, not fn()void"),
            ("_ = a[¶true];", "an index must be an integer, not bool"),
            ("_ = two[¶i16];", "an index must be an integer, not type"),
            ("_ = &a[¶9];", "index 9 is outside of [8]f32"),
            ("_ = &a[¶-1];", "index -1 is outside of [8]f32"),
            ("_ = &ab[2, ¶3];", "index 3 is outside of [3, 3]i16"),
        )
        for when, make in (
            ("while running", lambda text: running(text, INDEXED)),
            ("while compiling", lambda text: f"{INDEXED}comptime {{ {text} }}\n"),
        )
    },
    "FIFO of a number": (value("@allocate_fifo(¶w)", "var w: i16;"), "FIFO needs a var array"),
}


def task(body: str, *declarations: str) -> str:
    """Return a program whose task starts by itself, with `DSDS`."""
    begin = "comptime { @activate(@get_local_task_id(8)); }"
    return running(body, DSDS, *declarations, begin)


RECEIVERS = "\n".join(
    f"const r{k} = @get_dsd(fabin_dsd, .{{ .extent = 1, .fabric_color = @get_color({k + 4}), "
    f".input_queue = @get_input_queue({k % 8}) }});"
    for k in range(16)
)
BACK_END = {
    "memory of one variable": (running("big[0] = 1;", "¶var big: [30000]i16;"), "bytes, a PE has 49,152"),
    "memory of many": (
        running("b[0] = 1; a[0] = 1.0; c[0] = 1;", "var b: [9000]i16;", "¶var a: [9000]f32;", "var c: [100]u16;"),
        "a PE has 49,152",
    ),
    "activated by an id that is not known yet": (
        "var t = @get_local_task_id(8);\ncomptime { @activate(¶t); }\n",
        "the value of var 't' is not known",
    ),
    "blocked by an id that is not known yet": (
        "var t = @get_local_task_id(8);\ncomptime { @block(¶t); }\n",
        "the value of var 't' is not known",
    ),
    "activated without a task": ("comptime { ¶@activate(@get_local_task_id(9)); }\n", "no task is bound to the id 9"),
    "activated while it runs": (task("¶@activate(@get_local_task_id(9));"), "no task is bound to the id 9"),
    "activated at the end": (
        task("¶@fmovs(out, fa, .{ .async = true, .activate = @get_local_task_id(9) });"),
        "no task has the id 9",
    ),
    "color of a descriptor at run time": (
        task("@fmovs(¶@get_dsd(fabout_dsd, .{ .extent = 1, .fabric_color = @get_color(w) }), 1.0);", "var w: u16 = 9;"),
        "no color that this could be is named",
    ),
    "id of a color in use": (
        "¶task late() void { @fmovs(fa, in_, .{ .async = true }); }\n"
        + running("", DSDS, "comptime { @bind_local_task(late, @get_local_task_id(2)); }"),
        "id 2 is a color with an input queue",
    ),
    "id of the compiler": (
        running("", DSDS, "task late() void { }", "comptime {", "@load_to_dsr(@get_dsr(dsr_dest, 1), fa);").replace(
            "task job", "¶@bind_local_task(late, @get_local_task_id(27)); }\ntask job"
        ),
        "id 27 is needed for",
    ),
    "too many input queues": (
        task("".join(f"@fmovs(fa, r{k}, .{{ .async = true }});\n" for k in range(16)) + "¶@fmovs(fa, in_);", RECEIVERS),
        "17 colors as inputs",
    ),
    "DSR that nobody loads": (task("¶@fmovs(@get_dsr(dsr_dest, 1), 1.0);"), "nothing is ever loaded"),
    "DSRs of different numbers": (
        task(
            "@load_to_dsr(@get_dsr(dsr_dest, 1), fa);\n@load_to_dsr(@get_dsr(dsr_src0, 2), fa);\n"
            "¶@fmovs(@get_dsr(dsr_dest, 1), @get_dsr(dsr_src0, 2));"
        ),
        "must have the same id",
    ),
    "128 bits at run time": (task("¶w += 1;", "var w: u128 = 1;"), "no u128"),
    "var of a function": ("fn f() void { }\n¶var p = &f;\n" + task("p();"), "compile time only"),
    "more parameters than registers": (
        f"¶noinline fn f({', '.join(f'a{k}: i32' for k in range(12))}) i32 "
        f"{{ return {' + '.join(f'a{k}' for k in range(12))}; }}\n"
        + task(f"w = f({', '.join('w' for _ in range(12))}) + f({', '.join('1' for _ in range(12))});", "var w: i32;"),
        "more registers than there are",
    ),
    "priority that there is not": (
        task("@fmovs(out, fa, .{ .async = true, .priority = ¶.{ .highest = true } });"),
        "has no field 'highest'",
    ),
    "two priorities": (
        task("@fmovs(out, fa, .{ .async = true, .priority = ¶.{ .high = true, .low = true } });"),
        "one priority",
    ),
    "on_control without its field": (
        task("@fmovs(fa, in_, .{ .async = true, .on_control = ¶.{ .start = true } });"),
        "has no field 'start'",
    ),
    "queue of a var": (
        running("", "var q: u16 = 3;", "comptime { @initialize_queue(@get_input_queue(¶q)); }"),
        "not known at compile time",
    ),
    "filter number": (task("w = ¶@get_filter_id(@get_color(2));", "var w: u16;"), "color 2 has no filter"),
    "wrong type in the library": (
        task("w = ¶math.sqrt(w);", 'const math = @import_module("<math>");', "var w: u16;"),
        "has type u16",
    ),
    "array of another size for the clock": (
        task("time.get_timestamp(¶&w);", 'const time = @import_module("<time>");', "var w: [2]u16;"),
        "*[3]u16 is needed",
    ),
    "number for a color of the library": (
        task("tile.teardown.exit(¶3);", 'const tile = @import_module("<tile_config>");'),
        "color is needed",
    ),
    "result of the library": (
        task("w = ¶random.random_f32(1.0, 2.0);", 'const random = @import_module("<random>");', "var w: i16;"),
        "i16 is needed",
    ),
    "commands of a control wavelet": (
        value("c.encode_single_payload(¶9, true, {}, 0)", 'const c = @import_module("<control>");'),
        "comptime_int",
    ),
    "symbol without a name": (running("", "var w: i16;", 'comptime { ¶@export_symbol(w, "w"); }'), "no @export_name"),
    "number exported": (running("", 'comptime { @export_symbol(¶3, "w"); }'), "only a function or a global"),
}
"""Mistakes that are seen when instructions are made."""

PE = "\nfn nothing() void { }\n"
TILES = 'for (@range(u16, 2)) |x| { @set_tile_code(x, 0, "pe.csl", .{}); }'
LAYOUTS = {
    "no rectangle": ("¶layout { }\n", "sets no rectangle"),
    "rectangle twice": (layout_of(f"¶@set_rectangle(2, 1);\n{TILES}"), "twice"),
    "rectangle too large": ("layout { ¶@set_rectangle(2000, 1); }\n", "does not fit into a fabric"),
    "empty rectangle": ("layout { @set_rectangle(¶0, 1); }\n", "at least 1"),
    "PE outside": (layout_of('@set_tile_code(¶2, 0, "pe.csl", .{});'), "coordinate x is 2"),
    "PE without code": (
        layout_of('@set_tile_code(0, 0, "pe.csl", .{});').replace("layout", "¶layout"),
        "(1, 0) has no code",
    ),
    "PE twice": (layout_of(TILES + '\n¶@set_tile_code(0, 0, "pe.csl", .{});'), "set twice"),
    "no file": (layout_of('@set_tile_code(0, 0, ¶"none.csl", .{});'), "no file 'none.csl'"),
    "color twice": (
        layout_of(
            TILES + "\nconst r = .{ .routes = .{ .rx = .{ WEST }, .tx = .{ RAMP } } };\n"
            "@set_color_config(0, 0, @get_color(1), r);\n¶@set_color_config(0, 0, @get_color(1), r);"
        ),
        "configured twice",
    ),
    "no direction": (
        layout_of(
            TILES + "\n@set_color_config(0, 0, @get_color(1), ¶.{ .routes = .{ .rx = .{ 3 }, .tx = .{ RAMP } } });"
        ),
        "rx must be directions",
    ),
    "field of a config": (
        layout_of(TILES + "\n@set_color_config(0, 0, @get_color(1), ¶.{ .route = .{} });"),
        "no field 'route'",
    ),
    "switch gap": (
        layout_of(TILES + "\n@set_color_config(0, 0, @get_color(1), ¶.{ .switches = .{ .pos2 = .{ .tx = RAMP } } });"),
        "an earlier one is not",
    ),
    "switch position": (
        layout_of(TILES + "\n@set_color_config(0, 0, @get_color(1), ¶.{ .switches = .{ .current_switch_pos = 4 } });"),
        "it can be 0 to 3",
    ),
    "filter without kind": (
        layout_of(TILES + "\n@set_color_config(0, 0, @get_color(1), ¶.{ .filter = .{ .limit1 = 4 } });"),
        "no kind",
    ),
    "number for a color": (layout_of(TILES + "\n@set_color_config(0, 0, ¶1, .{});"), "a color is needed"),
    "exported twice": (layout_of(TILES + '\n@export_name("f", fn()void);\n¶@export_name("f", fn()void);'), "twice"),
    "type for the host": (layout_of(TILES + '\n@export_name("f", ¶color);'), "the host cannot use"),
    "result for the host": (layout_of(TILES + '\n@export_name("f", ¶fn()i16);'), "returns void"),
    "assertion over lanes": (
        layout_of("for (@range(u16, 64)) |x| { ¶@comptime_assert(x != 40); }", size="64, 1"),
        "assertion failed",
    ),
    "before the rectangle": ('layout { ¶@set_tile_code(0, 0, "pe.csl", .{}); }\n', "comes before @set_rectangle"),
    "params no struct": (layout_of('@set_tile_code(0, 0, "pe.csl", ¶3);'), "given as a struct"),
    "endless loop": (
        layout_of("var i: u16 = 0;\nwhile (i < 1) { ¶i += 0; }").replace("¶", "").replace("while", "¶while"),
        "iterations",
    ),
}

LAYOUTS |= {
    "param that the program does not have a type for": (
        layout_of('for (@range(u16, 2)) |x| { @set_tile_code(x, 0, ¶"other.csl", .{}); }'),
        "no file 'other.csl'",
    ),
    "color of the layout out of range": (
        layout_of(TILES + "\n@set_color_config(0, 0, ¶@get_color(24), .{});"),
        "0 to 23",
    ),
    "color outside of the rectangle": (layout_of(TILES + "\n@set_color_config(¶2, 0, @get_color(1), .{});"), "is 2"),
}
PROGRAMS = {**SYNTAX, **NAMES, **TYPES, **STATEMENTS, **MACHINE, **VECTORS, **BACK_END}
"""Wrong files without a layout: source with its mark, and a piece of the message."""
