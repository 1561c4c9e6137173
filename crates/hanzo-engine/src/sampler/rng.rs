//! A counter-based random stream: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").

const M0: u32 = 0xD251_1F53;
const M1: u32 = 0xCD9E_8D57;
const W0: u32 = 0x9E37_79B9;
const W1: u32 = 0xBB67_AE85;

fn philox(mut ctr: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let p0 = u64::from(M0) * u64::from(ctr[0]);
        let p1 = u64::from(M1) * u64::from(ctr[2]);
        ctr =
            [(p1 >> 32) as u32 ^ ctr[1] ^ key[0], p1 as u32, (p0 >> 32) as u32 ^ ctr[3] ^ key[1], p0 as u32];
        key = [key[0].wrapping_add(W0), key[1].wrapping_add(W1)];
    }
    ctr
}

/// Draw number `draw` at `position` of continuation `branch` of the stream `seed`, uniform in [0, 1) with 53 bits.
pub fn uniform(seed: u64, position: u64, branch: u32, draw: u32) -> f64 {
    let ctr = [position as u32, (position >> 32) as u32, draw, branch];
    let out = philox(ctr, [seed as u32, (seed >> 32) as u32]);
    let bits = (u64::from(out[0]) << 32 | u64::from(out[1])) >> 11;
    bits as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of the Random123 distribution.
    #[test]
    fn philox_known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn uniform_is_uniform() {
        let n = 100_000;
        let mut bins = [0u32; 16];
        for i in 0..n {
            bins[(uniform(42, i, 0, 0) * 16.0) as usize] += 1;
        }
        let expected = n as f64 / 16.0;
        let chi2: f64 = bins.iter().map(|&b| (f64::from(b) - expected).powi(2) / expected).sum();
        assert!(chi2 < 37.7, "chi-square {chi2} at 15 degrees of freedom (p = 0.001)");
    }
}
