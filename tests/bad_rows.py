"""Command lines with one thing wrong in each -> how their one line begins. The files are those of bad_files.py."""

from __future__ import annotations

ROWS = {
    "trace exits.py:f": "exits.py failed while it was loaded: Exited: it calls sys.exit(3): let it return, or",
    "trace exits_later.py:f --arg f32[2]":
        "f failed while jax traced it: Exited: it calls sys.exit('bye'): let it return, or raise",
    "trace exits_later.py:f --args args":
        "--args args failed at exits_later.py: Exited: it calls sys.exit(): let it return, or",
    "exits.py": "exits.py failed while it was loaded: Exited: it calls sys.exit(3): let it return, or",
    "model_exits.py": "model_exits.py: stages() failed: Exited: it calls sys.exit(4): let it return, or raise",
    "trace recursing.py:f --arg f32[2]":
        "f failed while jax traced it: RecursionError: maximum recursion depth exceeded (at ",
    "trace multiline.py:f --arg f32[2]": "f failed while jax traced it: ValueError: one (at ",
    "trace empty.py:f": "empty.py has no function 'f': it has none",
    "trace text.py:f --arg f32[2]": "f failed while jax traced it: TypeError: ",
    "trace asks.py:f --arg f32[2]":
        "f failed while jax traced it: TracerBoolConversionError: ",
    "trace latin.py:f": "latin.py failed while it was loaded: SyntaxError: (unicode error)",
    "trace nul.py:f": "nul.py failed while it was loaded: SyntaxError: ",
    "latin_model.py": "latin_model.py:9 failed while it was loaded: SyntaxError: (unicode error)",
    "empty.py": "empty.py has no MODEL: end it with MODEL = Model(name, config, stages)",
    "folder.py": "no file folder.py: give the path of a Python file with a MODEL in it",
    "trace folder.py:f": "no file folder.py: give the path of a Python file, as in model.py:forward",
    "trace .:f": ". failed while it was loaded: TypeError: the 'package' argument is required to perform",
    "trace checkpoint": "checkpoint: name the function too, as in checkpoint:forward",
    "trace mine.py:plain --arg f32[-1]": "--arg 'f32[-1]': '-1' is not a size: write NAME=DTYPE[SIZE,...], as in",
    "trace mine.py:plain --arg f32[2,2] --arg f32[3,3]":
        "plain failed while jax traced it: TypeError: ",
    "trace mine.py:plain --arg 'f32[²]' --arg f32[2]":
        "--arg 'f32[²]': '²' is not a size: write NAME=DTYPE[SIZE,...], as in",
    "trace mine.py:plain --arg ''":
        "--arg '': write NAME=DTYPE[SIZE,...], as in 'x=bf16[1024,3072]', or NAME=VALUE for a",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --optimizer lion":
        "optimizer 'lion': choose one of sgd, momentum, adam, adamw",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --weights 9":
        "weights=9 names no argument: there are ",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --weights q":
        "weights='q' names no argument of plain: it takes ",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --step-time nan":
        "invalid value for '--step-time': nan is not a number (costtrace trace --help)",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --step-time -1":
        "invalid value for '--step-time': -1.0 is not in the range x>0 (costtrace trace --help)",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --step-time 0":
        "invalid value for '--step-time': 0.0 is not in the range x>0 (costtrace trace --help)",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --trips x": "--trips 'x': write --trips NAME=NUMBER",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --trips x=99999999999999999999999":
        "trips names the scope 'x', where no loop's count is unknown: such loops are in no scope",
    "trace mine.py:search --arg f32[8,8] --trips search=-3": "--trips 'search=-3': write --trips NAME=NUMBER",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --compiler-option x":
        "--compiler-option and --topology are for --compiled: add it",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --topology 2x4":
        "--compiler-option and --topology are for --compiled: add it",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --html /nowhere/x.html":
        "--html /nowhere/x.html: No such file or directory: give a path that can be written",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --html checkpoint":
        "--html checkpoint: Is a directory: give a path that can be written",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --plot x.pdf":
        "--plot x.pdf: it writes SVG and PNG: give a name that ends in .svg or .png",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --speedscope checkpoint":
        "--speedscope checkpoint: Is a directory: give a path that can be written",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --html ok.html --speedscope /nowhere/x":
        "--speedscope /nowhere/x: No such file or directory: give a path that can be written",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --html ok.html --plot x.pdf":
        "--plot x.pdf: it writes SVG and PNG: give a name that ends in .svg or .png",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --checkpoint good.safetensors --chip":
        "option '--chip' requires an argument",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --top 0":
        "invalid value for '--top': 0 is not in the range x>=1 (costtrace trace --help)",
    'trace mine.py:plain --arg \'w=__import__("os")\' --arg f32[2]':
        '--arg \'w=__import__("os")\': write NAME=DTYPE[SIZE,...], as in \'x=bf16[1024,3072]\', or',
    "trace 'mine.py:plain.x'": "mine.py has no function 'plain.x': it has none",
    "trace 'mine.py:plain' --dim n=3": "--dim n=3: no --arg has a size of that name: they name none",
    "trace mine.py:__builtins__": "mine.py: __builtins__ is a dict, not a function",
    "trace os:getcwd": "getcwd failed while jax traced it: TypeError: function getcwd traced for jit returned a",
    "trace os.path:join --arg f32[2]":
        "join failed while jax traced it: TypeError: expected str, bytes or os.PathLike object,",
    "trace nothing.py:f --arg f32[2]": "nothing.py:f: 1 arguments are too many: it takes ",
    "klein --chip empty.toml": 'empty.toml:1: the file has no name: add name = "mychip"',
    "klein --chip binary.toml": "binary.toml: this chip file cannot be read ('utf-8' codec can't decode byte 0x80 in",
    "klein --chip latin.toml": "latin.toml: this chip file cannot be read ('utf-8' codec can't decode byte 0xf6 in",
    "klein --chip cut.toml": "cut.toml:81: expected '=' after a key in a key/value pair (at end of document): mend",
    "klein --chip huge.toml": "huge.toml:248: efficiency.bfloat16 is zero: leave it out and say why under [missing]",
    "klein --chip nan.toml": "nan.toml:32: matrix.bfloat16: 'nan TFLOP/s' is not a number with a unit: write it like",
    "klein --chip minus.toml": "minus.toml:32: matrix.bfloat16: '-918 TFLOP/s' is negative: a quantity in FLOP/s is",
    "klein --chip unit.toml": "unit.toml:32: matrix.bfloat16: '918 TB/s' is not in FLOP/s: write it like '918 TFLOP/s'",
    "klein --chip nested.toml": "nested.toml:1: tables or arrays nest too deep: mend the TOML there",
    "klein --chip folder.toml":
        "no chip file 'folder.toml': give the path of a TOML file, or a name: a100, b200, b300,",
    "klein --chip ''": "no chip '': known are ",
    "klein --chip v6e,": "no chip '': known are ",
    "klein --batch 1e3": "batch 1e3: must be a whole number, 1 or more",
    "klein --batch -1": "batch -1: must be a whole number, 1 or more",
    "klein --res 999999999999x999999999999": "res 999999999999x999999999999: each side must be a multiple of 16: try",
    "klein --res ١٦x١٦": "res ١٦x١٦: must be WIDTHxHEIGHT in pixels: try 1360x768",
    "klein --chips 0": "--chips '0': write numbers of chips, as in 8 or 1,2,4,8",
    "klein --chips x": "--chips 'x': write numbers of chips, as in 8 or 1,2,4,8",
    "klein --chips 8 --strategy nope":
        "no strategy 'nope': there are ",
    "klein --chips 8 --mesh data=3": "--mesh data=3 has 3 chips, --chips says 8: make them the same",
    "klein --chips 8 --mesh data": "--mesh 'data': write AXIS=SIZE,AXIS=SIZE, as in data=2,model=4, each axis once",
    "klein --chips 8 --train lion": "optimizer 'lion': choose one of sgd, momentum, adam, adamw",
    "klein --strategy tp": "--strategy tp: say how many chips: --chips 8",
    "klein --chips 999999999999": "999999999999 chips are not whole pods or hosts of 256 v6e",
    "klein --by layer --view kernels --by primitive":
        "--compiled with --by primitive: the compiler knows scopes; leave --by out",
    "chips empty.toml": 'empty.toml:1: the file has no name: add name = "mychip"',
    "chips folder.toml": "no chip file 'folder.toml': give the path of a TOML file, or a name: a100, b200, b300,",
    "chips binary.toml": "binary.toml: this chip file cannot be read ('utf-8' codec can't decode byte 0x80 in",
    "chips nan.toml": "nan.toml:32: matrix.bfloat16: 'nan TFLOP/s' is not a number with a unit: write it like",
    "chips nofile.toml": "no chip file 'nofile.toml': give the path of a TOML file, or a name: a100, b200, b300,",
    "check": "missing option '--budget' (costtrace check --help)",
    "check --budget nofile.toml": "nofile.toml: No such file or directory: give the path of a budget file",
    "check --budget folder.toml": "folder.toml: Is a directory: give the path of a budget file",
    "check --budget empty.toml": "empty.toml: Object missing required field `limit`: a budget has program, chip and",
    "check --budget binary.toml":
        "binary.toml: 'utf-8' codec can't decode byte 0x80 in position 128: invalid start byte:",
    "check --budget nested.toml":
        "nested.toml: maximum recursion depth exceeded: a budget has program, chip and [[limit]]",
    "check --budget budget_none.toml":
        "budget_none.toml: Object missing required field `limit`: a budget has program, chip and",
    "check --budget budget_key.toml":
        "budget_key.toml: Object contains unknown field `limits`: a budget has program, chip and",
    "check --budget budget_unit.toml":
        "budget_unit.toml: limit 1: flops = '1 GB': '1 GB' is not in FLOP: write it like '2 FLOP'",
    "check --budget budget_word.toml":
        "budget_word.toml: limit 1: flops = 'few': 'few' is not a number with a unit: write it",
    "check --budget budget_scope.toml": "small.py has no scope 'nowhere': it has no scopes",
    "check --budget budget_quantity.toml":
        "budget_quantity.toml: limit 1: no quantity 'flopz': there are ",
    "check --budget budget_program.toml":
        "no model 'klien': did you mean klein? There are ",
    "check --budget budget_nameless.toml":
        'budget_nameless.toml names no program: add program = "klein", or give --program',
    "check --budget budget_chip.toml":
        "no chip 'v99': known are ",
    "check --budget budget_latin.toml":
        "budget_latin.toml: 'utf-8' codec can't decode byte 0xe4 in position 13: invalid",
    "check --budget budget_list.toml":
        "budget_list.toml: limit 1: flops = [1]: write a limit with its unit, like '2 FLOP'",
    "check --budget budget_nameless.toml --program small.py:tokens":
        "small.py:tokens names a function, and this takes a model: put a MODEL around it in small.py (docs/",
    "check --budget budget_nameless.toml --program empty.json":
        "empty.json is not JSON (Expecting value: line 1 column 1 (char 0)): save it with",
    "diff nofile.json nofile.json": "nofile.json: No such file or directory: give a saved JSON file, or a model",
    "diff empty.json klein": "empty.json is not JSON (Expecting value: line 1 column 1 (char 0)): save it with",
    "diff binary.json klein": "binary.json is not JSON ('utf-8' codec can't decode byte 0x80 in position 128: invalid",
    "diff list.json klein": "list.json is no document of a model or a profile (schema None): save it with --format",
    "diff schema.json klein": "schema.json is no document of a model or a profile (schema 'costtrace.profile/99'):",
    "diff bare.json klein": "bare.json: no whole profile: Object missing required field `name`: save it again with",
    "diff bare_document.json klein":
        "bare_document.json is no document of a model or a profile (schema 'costtrace/1'): save",
    "diff nested.json klein": "nested.json is not JSON (maximum recursion depth exceeded while decoding a JSON array",
    "diff digits.json klein": "digits.json is not JSON (Exceeds the limit (4300 digits) for integer string conversion:",
    "diff folder.json klein": "folder.json: Is a directory: give a saved JSON file, or a model",
    "diff klein": "diff klein: against what? give a second program, or a revision: FILE.py:FUNCTION@main",
    "diff": "missing argument 'BEFORE' (costtrace diff --help)",
    "diff klein@main klein": "klein@main: a revision is that of a Python file: write FILE.py@REVISION",
    "diff mine.py:mlp@": "mine.py:mlp@: no revision after @: write mine.py:mlp@main, or leave the @ out",
    "diff klein klein --args shapes": "--args is for a function, and neither side is one: write FILE.py:FUNCTION",
    "diff klein klein:rez=1": "klein has no option 'rez': it takes ",
    "diff klein klein:res=": "klein:res=: option 'res=' has no value: write klein:NAME=VALUE,NAME=VALUE",
    "diff klein klein --by nope": "no quantity 'nope': there are ",
    "diff klein klein:chip=v99":
        "no chip 'v99': known are ",
    "diff '' ''": "'' names nothing: give a saved JSON file, or a model: klein:res=512x512",
    "audit small.py --checkpoint nofile.safetensors":
        "no file nofile.safetensors: give a .safetensors file or a .safetensors.index.json",
    "audit small.py --checkpoint empty.safetensors":
        "empty.safetensors is no safetensors file: its first eight bytes are no header's length",
    "audit small.py --checkpoint short.safetensors":
        "short.safetensors is no safetensors file: its first eight bytes are no header's length",
    "audit small.py --checkpoint long.safetensors":
        "long.safetensors is no safetensors file: its first eight bytes are no header's length",
    "audit small.py --checkpoint past.safetensors":
        "past.safetensors ends after 2 bytes of its header of 5000: fetch it again",
    "audit small.py --checkpoint words.safetensors":
        "words.safetensors is no safetensors file: its header is not the JSON of the format:",
    "audit small.py --checkpoint latin.safetensors":
        "latin.safetensors is no safetensors file: its header is not the JSON of the format:",
    "audit small.py --checkpoint list.safetensors":
        "list.safetensors is no safetensors file: its header is not the JSON of the format:",
    "audit small.py --checkpoint shape.safetensors":
        "shape.safetensors is no safetensors file: its header is not the JSON of the format:",
    "audit small.py --checkpoint minus.safetensors":
        "minus.safetensors is no safetensors file: its header is not the JSON of the format:",
    "audit small.py --checkpoint huge.safetensors":
        "huge.safetensors: tensor 'w' of shape (1000000000000000000000000000000, 16) is larger",
    "audit small.py --checkpoint dtype.safetensors":
        "dtype.safetensors: tensor 'w' has dtype F99: known are ",
    "audit small.py --checkpoint dtype_list.safetensors":
        "dtype_list.safetensors is no safetensors file: its header is not the JSON of the",
    "audit small.py --checkpoint checkpoint":
        "no file checkpoint: give a .safetensors file or a .safetensors.index.json",
    "audit small.py --checkpoint orbax": "no file orbax: give a .safetensors file or a .safetensors.index.json",
    "audit small.py --checkpoint absent.safetensors.index.json":
        "absent.safetensors.index.json names absent.safetensors, which is not beside it: put it",
    "audit small.py --checkpoint up.safetensors.index.json":
        "up.safetensors.index.json names '../../etc/passwd': the files of a checkpoint lie",
    "audit small.py --checkpoint number.safetensors.index.json":
        "number.safetensors.index.json is no index of a sharded checkpoint: Expected `str`, got",
    "audit small.py --checkpoint listed.safetensors.index.json":
        "listed.safetensors.index.json is no index of a sharded checkpoint: Expected `object`,",
    "audit small.py --checkpoint other.safetensors.index.json":
        "other.safetensors.index.json names 'v', which good.safetensors does not hold: index and",
    "audit small.py --checkpoint walk=good.safetensors":
        "--checkpoint walk=good.safetensors: no stage 'walk': there are ",
    "audit small.py --checkpoint good.safetensors --map nofile.json":
        "nofile.json is no mapping: [Errno 2] No such file or directory: 'nofile.json': write",
    "audit small.py --checkpoint good.safetensors --map folder.json":
        "folder.json is no mapping: [Errno 21] Is a directory: 'folder.json': write JSON,",
    "audit small.py --checkpoint good.safetensors --map map_list.json":
        'map_list.json is no mapping: write a JSON object, {"block/{n}/up": "layers.{n}.w1"}',
    "audit small.py --checkpoint good.safetensors --map map_number.json":
        "map_number.json is no mapping: 'w' is given 3: write a name, or a list of names",
    "audit small.py --checkpoint good.safetensors --map map_absent.json":
        "the mapping's 'nowhere' is not in the checkpoint",
    "audit small.py --checkpoint good.safetensors --map map_weight.json":
        "the mapping's 'nowhere' is no weight of the program: it has 'w' and others",
    "audit small.py --checkpoint good.safetensors --map binary.json":
        "binary.json is no mapping: 'utf-8' codec can't decode byte 0x80 in position 128:",
    "audit small.py --checkpoint good.safetensors --map nested.json":
        "nested.json is no mapping: maximum recursion depth exceeded while decoding a JSON array",
    "audit small.py --claims nofile.py":
        "no file nofile.py: give the path of a Python file with CLAIMS = Claims(...) in it",
    "audit small.py --claims claims_none.py":
        "claims_none.py has no CLAIMS: end it with CLAIMS = Claims([Claim(...), ...])",
    "audit small.py --claims claims_exits.py":
        "claims_exits.py failed while it was loaded: Exited: it calls sys.exit(3): let it",
    "audit small.py --claims claims_raise.py":
        "claims_raise.py failed while it was loaded: ZeroDivisionError: division by zero: mend",
    "audit small.py --claims claims_measure.py":
        "claims_measure.py: claim 'run' of run measures 'flopz': choose one of product_flops,",
    "audit small.py --claims claims_formula.py":
        'claim \'run\' of run: \'__import__("os")\' uses \'__import__\', which is not known: it may',
    "audit small.py --claims claims_deep.py": "claim 'run' of run:",
    "audit small.py --claims claims_stage.py": "claim 'walk' is about stage 'walk': there are ",
    "audit small.py --claims latin.py":
        "latin.py failed while it was loaded: SyntaxError: (unicode error)",
    "audit small.py --claims folder.py":
        "no file folder.py: give the path of a Python file with CLAIMS = Claims(...) in it",
    "audit small.py --fail-on nope":
        "--fail-on nope: no such verdict: choose from arithmetic, cancels, convention, differs,",
    "audit small.py --explain nope": "--explain nope: no such row: there are ",
    "audit small.py --compiled v99":
        "no chip 'v99': known are ",
    "audit klien": "no model 'klien': did you mean klein? There are ",
    "trace mine.py:with_tree --arg bf16[4,8] --checkpoint clash.safetensors":
        "tensor 'a/b' lies under 'a', which is a tensor too: rename one of them",
    "trace mine.py:with_tree --arg bf16[4,8] --checkpoint dtype.safetensors":
        "dtype.safetensors: tensor 'w' has dtype F99: known are ",
    "trace mine.py:with_tree --arg bf16[4,8] --checkpoint minus.safetensors":
        "minus.safetensors is no safetensors file: its header is not the JSON of the format:",
    "trace mine.py:with_tree --arg bf16[4,8] --checkpoint huge.safetensors":
        "huge.safetensors: tensor 'w' of shape (1000000000000000000000000000000, 16) is larger",
    "trace mine.py:with_tree --arg bf16[4,8] --checkpoint checkpoint":
        "checkpoint is no orbax checkpoint: no _METADATA in it; give the folder of one step's",
    "trace mine.py:with_tree --arg bf16[4,8] --checkpoint orbax":
        "orbax: its metadata names no array: give the folder of one step's item, whole",
    "trace empty.hlo": "empty.hlo: not an HLO module: the text starts with '', not with 'HloModule'; give an",
    "trace words.hlo": "words.hlo: not an HLO module: the text starts with 'these are words', not with",
    "trace binary.hlo": "binary.hlo is neither HLO text nor an HLO proto: dump it with --xla_dump_hlo_as_text",
    "trace cut.hlo": "cut.hlo: not a whole HLO module: the text ends inside 'main'; dump the module with all",
    "trace shape.hlo": "shape.hlo: HLO instruction 'y' cannot be read (invalid literal for int() with base 10:",
    "trace operand.hlo": "operand.hlo: HLO instruction 'y' reads 'z', which 'main' has not: dump the module",
    "trace entry.hlo": "entry.hlo: not a whole HLO module: no ENTRY computation; dump the module with all its",
    "trace folder.hlo": "folder.hlo: Is a directory: give the path of an HLO dump",
    "trace nofile.hlo": "nofile.hlo: No such file or directory: give the path of an HLO dump",
    "trace empty.pb": "empty.pb: not an HLO module: the text starts with '', not with 'HloModule'; give an HLO",
    "trace zeros.pb": "zeros.pb: zeros.pb is no HLO proto that this jaxlib reads: dump it with",
    "trace cut.pb": "cut.pb: cut.pb is no HLO proto that this jaxlib reads: dump it with",
    "trace words.jaxexport": "words.jaxexport is no jax.export artifact (unpack_from requires a buffer of at least",
    "trace empty.jaxexport": "empty.jaxexport is no jax.export artifact (unpack_from requires a buffer of at least 4",
    "trace stable.jaxexport": "stable.jaxexport is no jax.export artifact (unpack_from requires a buffer of at least",
    "trace words.jaxexport --arg f32[2]":
        "words.jaxexport is an artifact, with arguments of its own: give only --dim for its sizes",
    "trace empty.hlo --chip v99":
        "no chip 'v99': known are ",
    "emulate nope": "no model 'nope': there are ",
    "emulate --chip v99": "no chip 'v99': known are ",
    "emulate --tile 2x2": "--tile 2x2: write MxNxK, as in 16x8x32",
    "emulate --moduli -1": "--moduli -1: give a whole number, 1 or more, or auto",
    "emulate --fp64 fast": "'fast' is not a number with a unit: write it like '918 TFLOP/s'",
    "emulate --hbm '1 FLOP/s'": "'1 FLOP/s' is not in B/s: write it like '819 GB/s'",
    "emulate --set nope=1": "hpc has no option 'nope': it takes ",
    "emulate --set nonzeros": "nonzeros: a value is empty: write --nonzeros 512, or several with one comma",
    "emulate --convert nan": "invalid value for '--convert': nan is not a number (costtrace emulate --help)",
    "emulate --alpha inf": "invalid value for '--alpha': inf is not a number (costtrace emulate --help)",
    "emulate --scheme nope": "invalid value for '--scheme': 'nope' is not one of 'ozaki2-fp8', 'ozaki2-int8',",
    "emulate exits.py:f": "exits.py failed while it was loaded: Exited: it calls sys.exit(3): let it return, or",
    "advise nope": "no model 'nope': there are ",
    "advise small.py --what-if nope":
        "--what-if nope: there are ",
    "advise small.py --what-if int8:nowhere":
        "--what-if int8:nowhere: no scope is called nowhere: costtrace MODEL --depth 3 lists them",
    "advise small.py --what-if fuse:": "--what-if fuse:: name scopes, as in fuse:double/mlp",
    "advise small.py --chips 0": "invalid value for '--chips': 0 is not in the range x>=1 (costtrace advise small.py",
    "advise small.py --chip v99":
        "no chip 'v99': known are ",
    "sweep klein --res 500x500": "res 500x500: each side must be a multiple of 16: try 496x496",
    "sweep klein --rez 1": "no such option '--rez'. (Did you mean one of: '--price', '--res'?) (costtrace sweep",
    "sweep klein --chips 0": "--chips '0': write numbers of chips, as in 8 or 1,2,4,8",
    "sweep klein --jobs 0": "--jobs 0: write how many processes, or -1 for one a core",
    "sweep klein --price nan": "invalid value for '--price': nan is not a number (costtrace sweep klein --help)",
    "sweep klein --price -1":
        "invalid value for '--price': -1.0 is not in the range x>0 (costtrace sweep klein --help)",
    "sweep klein --chip v99": "no chip 'v99': known are ",
    "sweep klein --strategy nope":
        "no strategy 'nope': there are ",
    "sweep nope": "no model 'nope': there are ",
    "sweep exits.py": "exits.py failed while it was loaded: Exited: it calls sys.exit(3): let it return, or",
    "validate --chip v99": "no measurement of any model on v99: there are ",
    "validate --model nope": "no measurement of nope on any chip: there are ",
    "validate --format nope": "invalid value for '--format': 'nope' is not one of 'text', 'json', 'csv', 'tsv', 'md',",
    "schema nope": "no schema 'nope': there are ",
    "models extra": "got unexpected extra argument (extra) (costtrace models --help)",
    "setup cpu": "invalid value for '{tpu|gpu}': 'cpu' is not one of 'tpu', 'gpu' (costtrace setup --help)",
    "setup": "missing argument '{tpu|gpu}'. Choose from: tpu, gpu (costtrace setup --help)",
    "--nope": "no such option '--nope' (costtrace --help)",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --html ok.html --speedscope ok.html":
        "--html ok.html: --speedscope writes there too: give each a path of its own",
    "audit small.py --claims claims_power.py":
        "claim 'run' of run: '9**9**9**9' is no formula: 9 ** 387420489 has more than 4096 bits:",
    "sweep klein --res 500x500,1x1":
        "res 500x500: each side must be a multiple of 16: try 496x496 (and 1 more configurations",
    "sweep hpc --jobs x": "invalid value for '--jobs': 'x' is not a valid integer (costtrace sweep hpc --help)",
    "klein --chip v6e.toml": "no chip file 'v6e.toml': give the path of a TOML file, or a name: a100, b200, b300,",
    "trace mine.py:": "mine.py:: name the function too, as in mine.py:forward",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --collapsed /nowhere/x":
        "--collapsed /nowhere/x: No such file or directory: give a path that can be written",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --timeline checkpoint":
        "--timeline checkpoint: Is a directory: give a path that can be written",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --graph /nowhere/x":
        "--graph /nowhere/x: No such file or directory: give a path that can be written",
    "trace mine.py:plain --arg f32[2,2] --arg f32[2,2] --chip v6e,h100 --speedscope x":
        "--speedscope holds one configuration on one chip, not 2: ask for each alone",
    "fails.py": "run failed while jax traced it: AttributeError: DynamicJaxprTracer has no attribute",
    "no_function.py": "stage 'run' has 3 for its function: write Stage(name, forward, args)",
    "advise fails.py": "run failed while jax traced it: AttributeError: DynamicJaxprTracer has no attribute",
    "audit fails.py": "run failed while jax traced it: AttributeError: DynamicJaxprTracer has no attribute",
    "emulate fails.py": "run failed while jax traced it: AttributeError: DynamicJaxprTracer has no attribute",
    "diff fails.py klein": "run failed while jax traced it: AttributeError: DynamicJaxprTracer has no attribute",
    "check --budget budget_nameless.toml --program fails.py":
        "run failed while jax traced it: AttributeError: DynamicJaxprTracer has no attribute",
    "sweep fails.py": "run failed while jax traced it: AttributeError: DynamicJaxprTracer has no attribute",
    "measure nope": "no model 'nope': there are ",
    "measure small.py --stage nope": "--stage nope: no such stage: there are ",
    "measure small.py --seconds-each nan": "invalid value for '--seconds-each': nan is not a number",
    "measure small.py --out /nowhere/x.json": "--out /nowhere/x.json: No such file or directory: give the path",
    "measure exits.py": "exits.py failed while it was loaded: Exited: it calls sys.exit(3): let it return, or",
    "measure mine.py:nope": "mine.py has no function 'nope': it has ",
    "compare small.py": "missing option '--measured' (costtrace compare small.py --help)",
    "compare small.py --measured nofile.json": "nofile.json: No such file or directory: give ",
    "compare small.py --measured empty.json": "empty.json: no JSON (",
    "compare small.py --measured binary.json": "binary.json is no text: give ",
    "compare small.py --measured list.json": "list.json: row 1 has no scope and seconds: write both",
    "compare small.py --measured nested.json": "nested.json: no JSON (maximum recursion depth exceeded",
    "compare small.py --measured checkpoint": "checkpoint: no *.xplane.pb in it: give the folder",
    "compare small.py --measured nested.toml": "measurements/nested.toml: maximum recursion depth exceeded",
    f"trace mine.py:search --arg f32[4] --trips search=1{'0' * 400}": "a number of more than 300 digits: give a",
    f"klein --res 512x512 --steps {'9' * 300}": "a count or a time is more than 1e308: give smaller sizes, trips or",
    "calibrate --out x.txt": "--out x.txt: a chip file ends in .toml: write --out x.txt.toml",
    "calibrate --out /nowhere/x.toml": "--out /nowhere/x.toml: No such file or directory: give the path",
    "calibrate --noise nan": "invalid value for '--noise': nan is not a number",
    "doctor extra": "got unexpected extra argument (extra) (costtrace doctor --help)",
}  # fmt: skip
