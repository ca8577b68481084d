//! The published figures: faults a second on 44 cores with 88 threads, with mean and standard
//! deviation.

use super::{PRIVATE, SHARED};
use crate::scaling::experiment::{Figure, Published};

const SOURCE: &str = "Daniel Jordan, \"[RFC PATCH v2 0/8] lru_lock scalability and SMP list functions\", \
                      linux-kernel, 11 September 2018";

/// Tasks; faults a second and their deviation, for each of [`KERNELS`].
type Row = (usize, [(u32, u32); KERNELS.len()]);

/// Our names of the kernels.
const KERNELS: [&str; 4] = ["baseline", "free-frames", "lru", "both"];

const ROWS: usize = 16;

/// In million faults a second.
const fn figures(rows: &[Row; ROWS]) -> [Figure; ROWS * KERNELS.len()] {
    let mut all = [Figure { scheme: "", cpus: 0, value: 0.0, deviation: None }; ROWS * KERNELS.len()];
    let mut at = 0;
    while at < all.len() {
        let (cpus, kernels) = &rows[at / KERNELS.len()];
        let (mean, deviation) = kernels[at % KERNELS.len()];
        let scheme = KERNELS[at % KERNELS.len()];
        let [value, deviation] = [mean as f64 / 1e6, deviation as f64 / 1e6];
        all[at] = Figure { scheme, cpus: *cpus, value, deviation: Some(deviation) };
        at += 1;
    }
    all
}

const fn table(
    workload: &'static str,
    about: &'static str,
    figures: &'static [Figure],
    note: &'static str,
) -> Published {
    let (machine, unit) = ("xeon-e5-2699v4", "M/s");
    Published {
        machine,
        workload,
        source: SOURCE,
        about,
        unit,
        higher_is_better: true,
        older: Some(KERNELS[0]),
        figures,
        beside: &[],
        columns: &[],
        note,
    }
}

const PRIVATE_NOTE: &str = "A fault of one task of the baseline is fitted to the table; what the locks do isn't. The \
                            simulated machine is faster with many tasks: it has no turbo that ends, and no other work. \
                            More than 8 tasks map 16 MiB each.";
const SHARED_NOTE: &str = "A space's semaphore decides, as published. More than 8 tasks map 16 MiB each.";

/// The tables.
pub(super) const ALL: &[Published] = &[
    table(PRIVATE.name, "will-it-scale page_fault1, each task with its own space", &figures(PROCESSES), PRIVATE_NOTE),
    table(SHARED.name, "the same, all tasks threads of one process", &figures(THREADS), SHARED_NOTE),
];

const PROCESSES: &[Row; ROWS] = &[
    (1, [(626_944, 910), (739_659, 2_038), (627_490, 878), (735_983, 2_349)]),
    (2, [(1_206_238, 4_012), (1_235_318, 3_158), (1_207_246, 4_988), (1_235_271, 3_005)]),
    (3, [(1_751_889, 5_887), (1_751_247, 5_646), (1_744_999, 7_040), (1_747_431, 4_420)]),
    (4, [(2_260_201, 11_482), (2_249_463, 14_628), (2_248_302, 7_457), (2_243_240, 10_386)]),
    (5, [(2_735_351, 9_731), (2_734_270, 13_779), (2_721_069, 8_417), (2_736_317, 11_533)]),
    (6, [(3_186_435, 13_939), (3_207_879, 17_603), (3_183_244, 9_285), (3_191_478, 10_418)]),
    (7, [(3_596_306, 17_419), (3_637_085, 21_485), (3_600_797, 9_867), (3_635_861, 12_439)]),
    (8, [(3_986_712, 15_947), (4_038_783, 30_921), (3_997_520, 11_823), (4_054_638, 11_798)]),
    (11, [(5_138_494, 17_634), (5_292_452, 40_896), (5_193_843, 11_302), (5_374_562, 10_654)]),
    (22, [(7_569_187, 13_649), (7_799_567, 97_785), (7_785_212, 15_388), (9_747_634, 17_156)]),
    (33, [(12_375_135, 30_387), (12_613_466, 77_903), (12_637_508, 22_712), (14_749_004, 25_344)]),
    (44, [(13_446_153, 14_539), (13_876_101, 112_976), (13_717_051, 16_931), (15_947_859, 26_001)]),
    (55, [(12_050_977, 30_210), (12_602_426, 132_027), (12_184_481, 34_199), (17_628_736, 25_595)]),
    (66, [(11_464_526, 146_140), (12_114_164, 41_711), (11_510_009, 74_300), (18_185_360, 27_496)]),
    (77, [(10_818_432, 149_865), (11_438_010, 82_363), (10_874_888, 80_922), (18_016_393, 23_742)]),
    (88, [(10_321_790, 214_000), (10_913_729, 168_111), (10_328_335, 142_255), (17_942_799, 22_720)]),
];

const THREADS: &[Row; ROWS] = &[
    (1, [(625_509, 756), (735_896, 2_139), (625_162, 770), (732_936, 2_640)]),
    (2, [(1_083_497, 4_571), (1_097_745, 8_919), (1_087_846, 5_700), (1_083_578, 6_915)]),
    (3, [(1_443_610, 11_049), (1_470_561, 13_407), (1_451_507, 13_186), (1_447_024, 9_847)]),
    (4, [(1_769_095, 16_576), (1_816_409, 10_988), (1_754_936, 13_288), (1_790_833, 11_186)]),
    (5, [(2_022_303, 18_199), (2_084_468, 11_230), (1_970_701, 14_747), (2_016_043, 10_324)]),
    (6, [(2_241_910, 22_103), (2_311_070, 12_345), (2_205_632, 22_457), (2_236_722, 10_814)]),
    (7, [(2_374_538, 29_782), (2_506_351, 11_448), (2_346_063, 22_613), (2_413_326, 15_745)]),
    (8, [(2_519_189, 30_129), (2_613_556, 8_244), (2_499_498, 28_395), (2_626_450, 9_534)]),
    (11, [(2_932_708, 31_765), (3_126_170, 21_254), (2_900_615, 24_055), (3_002_084, 24_255)]),
    (22, [(3_134_116, 58_149), (3_436_117, 33_450), (3_109_155, 41_575), (3_372_679, 38_762)]),
    (33, [(2_180_328, 56_529), (2_373_756, 30_706), (2_248_516, 42_622), (2_378_286, 29_552)]),
    (44, [(2_365_487, 53_966), (2_549_351, 50_656), (2_173_398, 46_818), (2_540_516, 56_259)]),
    (55, [(2_372_251, 58_151), (2_448_653, 74_321), (2_408_744, 76_854), (2_446_613, 60_293)]),
    (66, [(2_389_751, 55_417), (2_806_805, 38_868), (2_704_305, 46_038), (2_796_004, 96_458)]),
    (77, [(2_634_568, 49_631), (2_764_441, 42_014), (2_727_729, 66_843), (2_670_715, 36_931)]),
    (88, [(2_815_546, 40_597), (3_048_392, 51_833), (2_715_226, 46_835), (2_715_442, 33_006)]),
];
