"""Puts many mutants into one source text, each behind a gate that a process opens by its number.

A mutant is as `cargo mutants --list --json` has it. A gate is an `if` with the changed code in it
and the code as it was behind `else`, so that one build has all mutants of a crate.
"""

import re

import tree_sitter
import tree_sitter_rust

import files

# Ends up in the crate's lib.rs. Number 0 is no mutant; the state is one more than the number.
MODULE = f"""
pub(crate) mod mutant {{
    use std::sync::atomic::{{AtomicU32, Ordering::Relaxed}};
    static STATE: AtomicU32 = AtomicU32::new(0);
    #[inline]
    pub(crate) fn on(number: u32) -> bool {{
        let state = STATE.load(Relaxed);
        if state == 0 {{ return read() == number + 1; }}
        state == number + 1
    }}
    #[cold]
    fn read() -> u32 {{
        let number = std::env::var("{files.VARIABLE}").ok().and_then(|text| text.parse().ok());
        let state = number.unwrap_or(0u32) + 1;
        STATE.store(state, Relaxed);
        state
    }}
}}
"""
PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
OPERATIONS = {"binary_expression", "compound_assignment_expr"}


def position(text, place):
    """Returns the byte of a line and a column, both from 1 on; columns are characters."""
    lines = text.split("\n")
    before = sum(len(line.encode()) + 1 for line in lines[: place["line"] - 1])
    return before + len(lines[place["line"] - 1][: place["column"] - 1].encode())


class Source:
    """A file and its mutants: number -> mutant."""

    def __init__(self, text, mutants):
        self.bytes = text.encode()
        self.by_place = {}
        for number, mutant in mutants.items():
            place = position(text, mutant["span"]["start"])
            self.by_place.setdefault((mutant["genre"], place), []).append((number, mutant))
        self.placed = set()

    def with_gates(self):
        """Returns the text with a gate for each mutant that has a form for it (`placed`)."""
        return self.render(PARSER.parse(self.bytes).root_node).decode()

    def raw(self, node):
        return self.bytes[node.start_byte : node.end_byte]

    def render(self, node):
        if node.type == "match_arm":
            return self.arm(node)
        inner = self.rest(node, None)
        if node.type in OPERATIONS:
            return self.operation(node, inner)
        if node.type == "unary_expression":
            return self.unary(node, inner)
        if node.type == "function_item":
            return self.function(node, inner)
        return inner

    def at(self, genre, place):
        """Returns the mutants of a kind at a byte, which have a gate from now on."""
        found = self.by_place.get((genre, place), [])
        self.placed |= {number for number, _ in found}
        return found

    def operation(self, node, inner):
        operator = node.child_by_field_name("operator")
        # `let` in a chain of conditions can be in no parentheses.
        if has(node, {"let_condition"}):
            return inner
        for number, mutant in self.at("BinaryOperator", operator.start_byte):
            changed = b" ".join([
                self.bytes[node.start_byte : operator.start_byte],
                mutant["replacement"].encode(),
                self.bytes[operator.end_byte : node.end_byte],
            ])
            inner = gate(number, changed, inner)
        return inner

    def unary(self, node, inner):
        for number, _ in self.at("UnaryOperator", node.start_byte):
            inner = gate(number, self.raw(node)[1:], inner)
        return inner

    def function(self, node, inner):
        body = node.child_by_field_name("body")
        result = node.child_by_field_name("return_type")
        # All that such a function returns is of one type, which a gate would add to.
        if result and (result.type == "abstract_type" or has(result, {"abstract_type"})):
            return inner
        found = self.inside(body) if body else []
        if not found:
            return inner
        self.placed |= {number for number, _ in found}
        head = body.start_byte - node.start_byte + 1
        # Nothing in front of the body has a gate: its place is the same in what was rendered.
        returns = b"".join(
            marked(number, b"if crate::mutant::on(%d) { return %s; }"
                   % (number, mutant["replacement"].encode()))
            for number, mutant in found
        )
        return inner[:head] + returns + inner[head:]

    def inside(self, body):
        """Returns the mutants whose place is the first statement of a body."""
        statements = [child for child in body.named_children if "comment" not in child.type]
        first = statements[0].start_byte if statements else body.start_byte
        return self.by_place.get(("FnValue", first), [])

    def arm(self, node):
        pattern = node.child_by_field_name("pattern")
        condition = pattern.child_by_field_name("condition")
        # Attributes are in front of the pattern.
        start = self.bytes[node.start_byte : pattern.start_byte]
        deleted = [marked(number, b"!crate::mutant::on(%d)" % number)
                   for number, _ in self.at("MatchArm", pattern.start_byte)]
        rest = self.rest(node, pattern)
        if condition is None:
            guard = b" && ".join(deleted)
            return start + self.raw(pattern) + (b" if " + guard if guard else b"") + rest
        if has(condition, {"let_condition"}) or condition.type == "let_condition":
            return self.rest(node, None)
        guard = self.render(condition)
        for number, mutant in self.at("MatchArmGuard", condition.start_byte):
            guard = gate(number, mutant["replacement"].encode(), guard)
        head = start + self.bytes[pattern.start_byte : condition.start_byte]
        return head + b" && ".join([*deleted, b"(" + guard + b")"]) + rest

    def rest(self, node, after):
        """Returns what is in a node behind a child (all of it for None), with gates."""
        parts, at = [], after.end_byte if after else node.start_byte
        for child in node.children:
            if child.start_byte >= at:
                parts += [self.bytes[at : child.start_byte], self.render(child)]
                at = child.end_byte
        return b"".join([*parts, self.bytes[at : node.end_byte]])


def has(node, types):
    return any(child.type in types or has(child, types) for child in node.children)


def gate(number, changed, inner):
    head = b"if crate::mutant::on(%d) { " % number
    return b"(" + marked(number, head + changed + b" } else") + b" { " + inner + b" })"


def marked(number, code):
    """Returns the code between marks: a message of the compiler about it is about the mutant."""
    return b"/*<%d*/" % number + code + b"/*%d>*/" % number


def blamed(text, start, end):
    """Returns the numbers of the mutants in whose code the bytes from `start` to `end` are."""
    data, found = text.encode(), set()
    for begin in re.finditer(rb"/\*<(\d+)\*/", data):
        finish = data.index(b"/*%s>*/" % begin[1], begin.end())
        if begin.start() < end and start < finish:
            found.add(int(begin[1]))
    node = PARSER.parse(data).root_node.descendant_for_byte_range(start, end)
    return found or behind_else(data, node) or in_arms(data, node)


def behind_else(data, node):
    """Returns the number of the innermost gate that a node is behind the `else` of: the compiler
    may find that code wrong, and not the changed code before it."""
    while node:
        gate_of = re.match(rb"if crate::mutant::on\((\d+)\)", data[node.start_byte :])
        if node.type == "if_expression" and gate_of:
            return {int(gate_of[1])}
        node = node.parent
    return set()


def in_arms(data, node):
    """Returns the numbers of the mutants that delete an arm of the `match` that a node is in: the
    compiler complains of the value that has no arm any more."""
    while node and node.type != "match_expression":
        node = node.parent
    code = data[node.start_byte : node.end_byte] if node else b""
    return {int(number) for number in re.findall(rb"!crate::mutant::on\((\d+)\)", code)}
