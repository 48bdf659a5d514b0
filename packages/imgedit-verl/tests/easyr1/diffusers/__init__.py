raise ImportError("this is no diffusers: EasyR1 brings none")
