// A method with a loop whose body is inlined from the standard library, for its name and lines.
mod field {
    pub struct Grid(pub Vec<f64>);

    #[inline(always)]
    fn damped(value: f64) -> f64 {
        (value * 1.0001).sqrt()
    }

    impl Grid {
        #[inline(never)]
        pub fn relax(&mut self) -> f64 {
            let mut sum = 0.0;
            for value in self.0.iter_mut() {
                *value = damped(*value);
                sum += *value;
            }
            sum
        }
    }
}

fn main() {
    println!("{}", field::Grid(vec![1.5; 1000]).relax());
}
