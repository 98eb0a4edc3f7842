"""The rules by which a program is written out, and which of them call each other.

An expression may hold a call, what is called is written out as statements, and those hold expressions. Parts that are above each
other in this circle know each other by the functions that stand here.
"""

from __future__ import annotations

from timelapse.kernels.native.lowering.calls import Calls
from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.columns import Columns
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.emits import Emits
from timelapse.kernels.native.lowering.evaluation import Expressions
from timelapse.kernels.native.lowering.fields import Fields
from timelapse.kernels.native.lowering.folds import Folds
from timelapse.kernels.native.lowering.inlining import Functions
from timelapse.kernels.native.lowering.iteration import Iteration
from timelapse.kernels.native.lowering.loops import Loops
from timelapse.kernels.native.lowering.raising import Raising
from timelapse.kernels.native.lowering.sending import Sends
from timelapse.kernels.native.lowering.stateful import States
from timelapse.kernels.native.lowering.statements import Statements
from timelapse.kernels.native.lowering.trying import Trial


class Rules:
    """Who does what."""

    def __init__(self, ctx: Context, code: Code, states: States, trial: Trial) -> None:
        fields = Fields(ctx, code)
        columns = Columns(ctx, code, fields, trial)
        expressions = Expressions(ctx, code, fields, states, trial, columns, self)
        self.expr, self.test = expressions.expr, expressions.test
        self.variable, self.operated = expressions.variable, expressions.operated
        calls = Calls(ctx, code, fields, states, self)
        self.call_expr, self.method = calls.call, calls.method
        self.folded = Folds(ctx, code, trial, self).folded
        iteration = Iteration(ctx, code, states, self)
        self.rounds, self.element, self.part = iteration.rounds, iteration.element, iteration.part

        functions = Functions(ctx, code, self)
        self.handler, self.call, self.return_ = functions.handler, functions.call, functions.return_
        statements = Statements(ctx, code, states, self)
        self.block, self.assign = statements.block, statements.assign
        loops = Loops(ctx, code, states, trial, self)
        self.while_, self.for_ = loops.while_, loops.for_
        self.break_, self.continue_ = loops.break_, loops.continue_

        emits = Emits(ctx, code, self)
        self.emit, self.reject, self.write_record = emits.emit, emits.reject, emits.write
        self.send = Sends(ctx, code, emits).send
        raising = Raising(ctx, code, trial, self)
        self.raises, self.asserts = raising.raises, raising.asserts
