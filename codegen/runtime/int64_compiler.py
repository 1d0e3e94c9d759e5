"""Functions of 64-bit words, written in a small part of Python's syntax, as LLVM text.

The runtime's own functions are loops over words with atomic operations: no types to infer, nothing
to unbox. Numba takes a second for them, most of it in its front end; this takes 20 ms and does not
import Numba. It knows no runtime: what a function may call beside other word functions are
`Primitive`s, each of which writes its own instructions.

What is understood: names and integer constants (literals, globals, a module's), + - * // & | ^ <<
>>, one comparison, and, or, not, min of two, calls; assignment, if, while, `for i in range(count)`,
return. Every value is a signed 64-bit word; a function returns 0 where it returns nothing.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from llvmlite import ir

WORD = ir.IntType(64)
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "sdiv",  # operands are never negative here
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "ashr",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


@dataclass(frozen=True, slots=True)
class Primitive:
    """An operation on words: `emit(builder, *words)` writes it and returns a word. Not callable
    from Python.
    """

    emit: Callable[..., Any]

    def __call__(self, *words: int) -> int:
        """Word functions are compiled, never run by Python; this is for type checkers."""
        raise TypeError("an operation on machine words runs only in compiled code")


def constant(value: int) -> Any:
    """A word."""
    return ir.Constant(WORD, value)


def external(name: str, arity: int) -> Primitive:
    """A C function of words."""

    def emit(builder: Any, *words: Any) -> Any:
        return builder.call(declare(builder.module, name, WORD, [WORD] * arity), words)

    return Primitive(emit)


def declare(module: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """A function that is defined elsewhere."""
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, arguments), name)


def emit_module(function: Callable[..., int], symbol: str) -> str:
    """LLVM text that exports `function` as `symbol`, with all that it calls inlined."""
    module = ir.Module(symbol)
    made = _Body(module, function, symbol)
    made.value.linkage = "external"
    return str(module)


class _Body:
    """One function being written. Variables are words on the stack; LLVM makes registers of
    them.
    """

    def __init__(self, module: Any, function: Callable[..., int], symbol: str) -> None:
        assert isinstance(function, FunctionType)
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        self.names = function.__globals__
        self.module = module
        parameters = [argument.arg for argument in tree.args.args]
        self.value = ir.Function(module, ir.FunctionType(WORD, [WORD] * len(parameters)), symbol)
        self.builder = ir.IRBuilder(self.value.append_basic_block("entry"))
        self.variables: dict[str, Any] = {}
        for name, word in zip(parameters, self.value.args, strict=True):
            self.assign(name, word)
        self.block(tree.body)
        if not self.builder.block.is_terminated:
            self.builder.ret(constant(0))

    # ---- statements

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if self.builder.block.is_terminated:
                raise self.unknown(statement)  # nothing comes after a return
            match statement:
                case ast.Assign(targets=[target], value=value):
                    self.assignment(target, value)
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    self.assign(name, self.binary(op, self.read(name), self.word(value)))
                case ast.Expr(value=ast.Constant()):  # a docstring
                    pass
                case ast.Expr(value=value):
                    self.word(value)
                case ast.If(test=test, body=body, orelse=orelse):
                    self.branch(test, body, orelse)
                case ast.While(test=test, body=body, orelse=[]):
                    self.loop(lambda test=test: self.truth(test), body)  # type: ignore[misc]
                case ast.For(
                    target=ast.Name(id=name),
                    iter=ast.Call(func=ast.Name(id="range"), args=[count]),
                    body=body,
                    orelse=[],
                ):
                    self.count(name, self.word(count), body)
                case ast.Return(value=value):
                    self.builder.ret(self.word(value) if value else constant(0))
                case _:
                    raise self.unknown(statement)

    def assignment(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self.assign(name, self.word(value))
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                words = [self.word(item) for item in values]
                for item, word in zip(targets, words, strict=True):
                    assert isinstance(item, ast.Name)
                    self.assign(item.id, word)
            case _:
                raise self.unknown(target)

    def assign(self, name: str, word: Any) -> None:
        if name not in self.variables:
            with self.builder.goto_entry_block():
                self.variables[name] = self.builder.alloca(WORD, name=name)
        self.builder.store(word, self.variables[name])

    def branch(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        then, other, after = (self.builder.append_basic_block() for _ in range(3))
        self.builder.cbranch(self.truth(test), then, other)
        for place, statements in ((then, body), (other, orelse)):
            self.builder.position_at_end(place)
            self.block(statements)
            if not self.builder.block.is_terminated:
                self.builder.branch(after)
        self.builder.position_at_end(after)
        if not any(
            after in block.terminator.operands for block in self.value.blocks if block.terminator
        ):
            self.builder.unreachable()

    def loop(
        self, test: Callable[[], Any], body: list[ast.stmt], step: Callable[[], None] | None = None
    ) -> None:
        head, inside, after = (self.builder.append_basic_block() for _ in range(3))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(test(), inside, after)
        self.builder.position_at_end(inside)
        self.block(body)
        if not self.builder.block.is_terminated:
            if step is not None:
                step()
            self.builder.branch(head)
        self.builder.position_at_end(after)

    def count(self, name: str, end: Any, body: list[ast.stmt]) -> None:
        self.assign(name, constant(0))
        self.loop(
            lambda: self.builder.icmp_signed("<", self.read(name), end),
            body,
            lambda: self.assign(name, self.builder.add(self.read(name), constant(1))),
        )

    # ---- expressions

    def word(self, expression: ast.expr) -> Any:
        match expression:
            case ast.Constant(value=int(value)):
                return constant(int(value))
            case ast.Name(id=name):
                return self.read(name)
            case ast.Attribute(value=ast.Name(id=module), attr=attribute):
                return self.known(getattr(self.names[module], attribute), attribute)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.word(left), self.word(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.builder.neg(self.word(operand))
            case ast.Call(func=ast.Name(id="min"), args=[left, right]):
                a, b = self.word(left), self.word(right)
                return self.builder.select(self.builder.icmp_signed("<", a, b), a, b)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self.call(expression, name, [self.word(item) for item in args])
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self.builder.zext(self.truth(expression), WORD)
            case _:
                raise self.unknown(expression)

    def truth(self, expression: ast.expr) -> Any:
        match expression:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.builder.icmp_signed(
                    _COMPARE[type(op)], self.word(left), self.word(right)
                )
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.builder.not_(self.truth(operand))
            case ast.BoolOp(op=op, values=[first, *rest]):
                return self.short_circuit(op, first, rest)
            case _:
                return self.builder.icmp_signed("!=", self.word(expression), constant(0))

    def short_circuit(self, op: ast.boolop, first: ast.expr, rest: list[ast.expr]) -> Any:
        bit = ir.IntType(1)
        after = self.builder.append_basic_block()
        reached = []
        known = self.truth(first)
        for expression in rest:
            following = self.builder.append_basic_block()
            reached.append((ir.Constant(bit, isinstance(op, ast.Or)), self.builder.block))
            places = (following, after) if isinstance(op, ast.And) else (after, following)
            self.builder.cbranch(known, *places)
            self.builder.position_at_end(following)
            known = self.truth(expression)
        reached.append((known, self.builder.block))
        self.builder.branch(after)
        self.builder.position_at_end(after)
        result = self.builder.phi(bit)
        for value, block in reached:
            result.add_incoming(value, block)
        return result

    def binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        return getattr(self.builder, _BINARY[type(op)])(left, right)

    def read(self, name: str) -> Any:
        if name in self.variables:
            return self.builder.load(self.variables[name])
        return self.known(self.names[name], name)

    def known(self, value: object, name: str) -> Any:
        if not isinstance(value, int):
            raise SyntaxError(f"{self.value.name}: {name} is not an integer")
        return constant(value)

    def call(self, expression: ast.expr, name: str, words: list[Any]) -> Any:
        callee = self.names[name]
        if isinstance(callee, Primitive):
            return callee.emit(self.builder, *words)
        if not isinstance(callee, FunctionType):
            raise self.unknown(expression)
        target = self.module.globals.get(name)
        if target is None:
            target = _Body(self.module, callee, name).value
            target.linkage = "internal"
            target.attributes.add("alwaysinline")
        return self.builder.call(target, words)

    def unknown(self, node: ast.AST) -> SyntaxError:
        return SyntaxError(f"{self.value.name}: word functions have no `{ast.unparse(node)}`")
