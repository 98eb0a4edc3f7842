"""The steps in which Numba compiles this project's functions: fewer than for any function.

Steps for what generated code never has are left out (closures, list comprehensions, array expressions, `with`, literals that choose a type).
So is the counting of references where a function makes no arrays. All other steps are Numba's and LLVM's own. A function that this
pipeline refuses is compiled by Numba's own.

See "Customizing the compiler" in Numba's documentation.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import errors, ir, types, untyped_passes
from numba.core import typed_passes as typed
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompilerBase
from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass

from timelapse.kernels.native.machine import store
from timelapse.kernels.native.machine.inference import Blocks, Reading, Resolved, Types
from timelapse.kernels.native.machine.instructions import Instructions
from timelapse.kernels.native.machine.objects import PARTS, symbols_in

untyped: Any = untyped_passes


class Library(JITCodeLibrary):  # type: ignore[misc, unused-ignore]
    """A function's code. It is optimised once, with all that it calls; Numba optimises it alone before that."""

    counts_references = False
    apart = False
    """Whether it is never written into what calls it."""
    shares = False
    """Whether what it calls, where that is not inlined, is called where it is: kept functions are not written out again."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Numba inlines before it optimises, to find counts of references that cancel out. Most functions have none."""
        if self.counts_references:
            super()._optimize_final_module()
        else:
            if self.shares:
                self._share()
            manager, builder = self._codegen._module_pass_manager()
            manager.run(self._final_module, builder)

    def _share(self) -> None:
        """Nothing is emitted for a kept function: calls that are not inlined go to its own code (`objects.Parts`)."""
        kept: dict[str, frozenset[str]] = {}
        for function in self._final_module.functions:
            entry = PARTS.entry_of(function.name)
            if entry is None or function.is_declaration:
                continue
            if entry not in kept:
                kept[entry] = symbols_in(store.read(entry))
            if function.name in kept[entry]:
                function.linkage = "available_externally"
                if any(b"noinline" in attributes for attributes in function.attributes):
                    function.add_function_attribute("optnone")  # it was optimised when it was compiled


@register_pass(mutates_CFG=False, analysis_only=True)
class NumbersKeepTheirKind(AnalysisPass):  # type: ignore[misc, unused-ignore]
    """Refuses functions in which an integer becomes a float because a variable elsewhere holds one, or a word without
    sign: Numba has one type for all that a variable holds. (With SSA, for all that is one value of it.)"""

    _name = "timelapse_numbers_keep_their_kind"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        kinds, calls = state.typemap, state.calltypes
        for block in state.func_ir.blocks.values():
            for assigned in block.find_insts(ir.Assign):
                target = kinds[assigned.target.name]
                if isinstance(target, types.Float) and _is_whole(assigned.value, kinds, calls):
                    raise errors.TypingError(
                        f"{assigned.target.name} holds integers and floats", assigned.loc
                    )
        return False


def _is_whole(value: Any, kinds: Any, calls: Any) -> bool:
    """Whether what is assigned is an integer or a bool."""
    if isinstance(value, ir.Expr) and value.op == "cast":
        value = value.value
    if isinstance(value, ir.Var):
        kind = kinds[value.name]
    elif isinstance(value, ir.Const | ir.Global | ir.FreeVar):
        return isinstance(value.value, int)
    else:
        call = calls.get(value) if isinstance(value, ir.Expr) else None
        kind = None if call is None else call.return_type
    return isinstance(kind, types.Integer | types.Boolean)


@contextmanager
def _no_search_for_garbage() -> Iterator[None]:
    """In the block no search for garbage runs: compiling makes millions of objects, and hardly any is garbage before its end."""
    searches = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searches:
            gc.enable()


class Pipeline(CompilerBase):  # type: ignore[misc, unused-ignore]
    """For functions whose variables may hold values of several types, one after the other."""

    several = True
    apart = False

    def compile_extra(self, func: Any) -> Any:
        """Compile it: the short way, or Numba's own where that is refused."""
        state = self.state
        typing = state.typingctx
        try:
            with _no_search_for_garbage():
                return super().compile_extra(func)
        except errors.NumbaError:
            flags = state.flags.copy()
            flags.nrt = True
            own = Compiler(typing, state.targetctx, None, state.args, None, flags, state.locals)
            return own.compile_extra(func)

    def define_pipelines(self) -> list[Any]:
        """The short way."""
        state = self.state
        state.library = Library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.library.counts_references = state.flags.nrt
        state.library.shares = not self.several
        state.library.apart = self.apart
        state.typingctx = Resolved(state.typingctx)
        manager = PassManager("timelapse")
        add = manager.add_pass
        if self.several:
            add(untyped.TranslateByteCode, "analyzing bytecode")
            add(untyped.FixupArgs, "fix up args")
            add(untyped.IRProcessing, "processing IR")
            add(untyped.ReconstructSSA, "ssa")
            add(typed.NopythonTypeInference, "nopython frontend")
            add(typed.PreLowerStripPhis, "remove phis nodes")
        else:
            add(Reading, "analyzing bytecode")
            add(untyped.FixupArgs, "fix up args")
            add(Blocks, "processing IR")
            add(Types, "nopython frontend")
            add(NumbersKeepTheirKind, "numbers keep their kind")
        if state.flags.nrt:
            add(typed.IRLegalization, "ensure IR is legal prior to lowering")
        add(Instructions, "native lowering")
        add(typed.NoPythonBackend, "nopython mode backend")
        manager.finalize()
        return [manager]


class FlatPipeline(Pipeline):
    """For functions in which every variable has one type: no SSA is needed."""

    several = False


class ApartPipeline(Pipeline):
    """For long functions, which are never written into what calls them."""

    apart = True
